#include "harness/comm/mpi_communicator.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "harness/comm/mpi_check.h"

namespace bertha {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kLatencyPolling{200};
constexpr std::chrono::microseconds kBackgroundPolling{100};
constexpr std::chrono::microseconds kShortestSleep{50};
constexpr std::chrono::microseconds kLongestSleep{250};

// A sleep lasts a twentieth of the wait so far: the added delay is small compared with the wait,
// and a long wait uses little of the core.
template <class IsDone>
void poll_until(const IsDone& is_done, CollectiveCall call) {
  const Clock::time_point begin = Clock::now();
  const Clock::duration polling =
      call == CollectiveCall::kOfPipeline ? kBackgroundPolling : kLatencyPolling;
  while (!is_done()) {
    const Clock::duration waited = Clock::now() - begin;
    if (waited < polling) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(
          std::clamp<Clock::duration>(waited / 20, kShortestSleep, kLongestSleep));
    }
  }
}

}  // namespace

void Communicator::wait_for(std::span<MPI_Request> requests, CollectiveCall call) const {
  const auto is_done = [&] {
    int done = 0;
    BERTHA_MPI_CHECK(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done,
                                 MPI_STATUSES_IGNORE));
    return done != 0;
  };
  const CallOnBoard on_board(board_, call);
  poll_until(is_done, call);
}

Communicator::Communicator(MPI_Comm parent, RankBoard* board) : board_(board) {
  {
    const CallOnBoard on_board(board_, CollectiveCall::kDuplicate);
    BERTHA_MPI_CHECK(MPI_Comm_dup(parent, &comm_));
  }
  BERTHA_MPI_CHECK(MPI_Comm_rank(comm_, &rank_));
  BERTHA_MPI_CHECK(MPI_Comm_size(comm_, &size_));
}

Communicator::~Communicator() {
  // While an exception unwinds, the other ranks do not reach this point: a collective call would
  // hang.
  if (comm_ != MPI_COMM_NULL && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
}

}  // namespace bertha

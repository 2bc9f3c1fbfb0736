#include "harness/comm/mpi_exchange.h"

#include <algorithm>

#include "harness/comm/mpi_check.h"

namespace bertha {
namespace {

constexpr int kTag = 0;
constexpr int64_t kMostBytesPerMessage = int64_t{1} << 30;  // MPI counts are int

}  // namespace

void Exchange::send(const void* data, int64_t bytes, int to) {
  for (int64_t begin = 0; begin < bytes; begin += kMostBytesPerMessage) {
    const int count = static_cast<int>(std::min(bytes - begin, kMostBytesPerMessage));
    requests_.push_back(MPI_REQUEST_NULL);
    BERTHA_MPI_CHECK(MPI_Isend(static_cast<const char*>(data) + begin, count, MPI_BYTE, to, kTag,
                               comm_.get(), &requests_.back()));
  }
}

void Exchange::receive(void* data, int64_t bytes, int from) {
  for (int64_t begin = 0; begin < bytes; begin += kMostBytesPerMessage) {
    const int count = static_cast<int>(std::min(bytes - begin, kMostBytesPerMessage));
    requests_.push_back(MPI_REQUEST_NULL);
    BERTHA_MPI_CHECK(MPI_Irecv(static_cast<char*>(data) + begin, count, MPI_BYTE, from, kTag,
                               comm_.get(), &requests_.back()));
  }
}

void Exchange::wait(CollectiveCall call) {
  comm_.wait_for(requests_, call);
  requests_.clear();
}

}  // namespace bertha

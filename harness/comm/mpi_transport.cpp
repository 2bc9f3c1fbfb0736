#include "harness/comm/mpi_transport.h"

#include <cstring>
#include <limits>
#include <vector>

#include "harness/comm/mpi_check.h"
#include "harness/comm/mpi_communicator.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// Checks a count: MPI counts and displacements are int, so one call sends less than 2 GiB per
/// rank.
int mpi_count(int64_t count, const char* what) {
  if (count > std::numeric_limits<int>::max()) {
    fail(ExitCode::kEnvironment, what, " of ", count,
         " elements in one call between ranks, want at most ", std::numeric_limits<int>::max(),
         "; use a smaller batch per step");
  }
  return static_cast<int>(count);
}

/// Offsets of the ranks' parts, and the end of the last part.
std::vector<int> offsets_of(const std::vector<int>& counts) {
  std::vector<int> offsets(counts.size() + 1, 0);
  int64_t end = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    end += counts[r];
    offsets[r + 1] = mpi_count(end, "an exchange");
  }
  return offsets;
}

std::vector<std::vector<std::byte>> split(const std::vector<std::byte>& joined,
                                          const std::vector<int>& offsets) {
  std::vector<std::vector<std::byte>> parts(offsets.size() - 1);
  for (size_t r = 0; r < parts.size(); ++r) {
    parts[r].assign(joined.begin() + offsets[r], joined.begin() + offsets[r + 1]);
  }
  return parts;
}

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const Communicator& parent) : comm_(parent.get(), parent.board()) {}

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }

  std::vector<int64_t> all_gather(std::span<const int64_t> mine) override {
    const int count = mpi_count(static_cast<int64_t>(mine.size()), "a gather");
    std::vector<int64_t> all(mine.size() * static_cast<size_t>(size()));
    MPI_Request request = MPI_REQUEST_NULL;
    BERTHA_MPI_CHECK(MPI_Iallgather(mine.data(), count, MPI_INT64_T, all.data(), count, MPI_INT64_T,
                                    comm_.get(), &request));
    comm_.wait_for(request, CollectiveCall::kOfPipeline);
    return all;
  }

  std::vector<int64_t> sum(std::span<const int64_t> mine) override {
    const int count = mpi_count(static_cast<int64_t>(mine.size()), "a sum");
    std::vector<int64_t> sums(mine.size());
    MPI_Request request = MPI_REQUEST_NULL;
    BERTHA_MPI_CHECK(MPI_Iallreduce(mine.data(), sums.data(), count, MPI_INT64_T, MPI_SUM,
                                    comm_.get(), &request));
    comm_.wait_for(request, CollectiveCall::kOfPipeline);
    return sums;
  }

  std::vector<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte> mine) override {
    const int64_t bytes = static_cast<int64_t>(mine.size());
    const std::vector<int> counts = to_counts(all_gather({&bytes, 1}));
    const std::vector<int> offsets = offsets_of(counts);
    std::vector<std::byte> joined(static_cast<size_t>(offsets.back()));
    MPI_Request request = MPI_REQUEST_NULL;
    BERTHA_MPI_CHECK(MPI_Iallgatherv(mine.data(), static_cast<int>(bytes), MPI_BYTE, joined.data(),
                                     counts.data(), offsets.data(), MPI_BYTE, comm_.get(),
                                     &request));
    comm_.wait_for(request, CollectiveCall::kOfPipeline);
    return split(joined, offsets);
  }

  std::vector<std::vector<std::byte>> all_to_all_bytes(
      std::span<const std::vector<std::byte>> outgoing,
      std::span<const int64_t> incoming_bytes) override {
    BERTHA_CHECK(std::ssize(outgoing) == size() && std::ssize(incoming_bytes) == size(),
                 "parts for ", outgoing.size(), " ranks and from ", incoming_bytes.size(),
                 ", want ", size());
    std::vector<int64_t> send_bytes;
    for (const auto& part : outgoing) send_bytes.push_back(static_cast<int64_t>(part.size()));
    const std::vector<int> send_counts = to_counts(send_bytes);
    const std::vector<int> send_offsets = offsets_of(send_counts);
    const std::vector<int> receive_counts = to_counts(incoming_bytes);
    const std::vector<int> receive_offsets = offsets_of(receive_counts);

    std::vector<std::byte> sent(static_cast<size_t>(send_offsets.back()));
    for (size_t r = 0; r < outgoing.size(); ++r) {
      if (!outgoing[r].empty()) {
        std::memcpy(sent.data() + send_offsets[r], outgoing[r].data(), outgoing[r].size());
      }
    }
    std::vector<std::byte> received(static_cast<size_t>(receive_offsets.back()));
    MPI_Request request = MPI_REQUEST_NULL;
    BERTHA_MPI_CHECK(MPI_Ialltoallv(sent.data(), send_counts.data(), send_offsets.data(), MPI_BYTE,
                                    received.data(), receive_counts.data(), receive_offsets.data(),
                                    MPI_BYTE, comm_.get(), &request));
    comm_.wait_for(request, CollectiveCall::kOfPipeline);
    return split(received, receive_offsets);
  }

 private:
  static std::vector<int> to_counts(std::span<const int64_t> values) {
    std::vector<int> counts;
    for (const int64_t value : values) counts.push_back(mpi_count(value, "a part"));
    return counts;
  }

  Communicator comm_;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(const Communicator& parent) {
  return std::make_unique<MpiTransport>(parent);
}

}  // namespace bertha

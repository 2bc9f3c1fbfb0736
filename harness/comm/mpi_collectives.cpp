#include "harness/comm/mpi_collectives.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "harness/comm/mpi_check.h"
#include "harness/comm/shard_check.h"

namespace bertha {
namespace {

// Bytes per pair of ranks and round: small enough that the sum finds them in the cache.
constexpr int64_t kRoundBytes = int64_t{1} << 20;
// Vectors below this size are sent to every rank as a whole: one round instead of two.
constexpr int64_t kWholeBytes = int64_t{1} << 12;

/// One round of messages between ranks: add all, then wait. Messages between two ranks arrive in
/// the order in which they were added. They may have any length; both sides omit empty ones.
class Messages {
 public:
  explicit Messages(const Communicator& comm) : comm_(comm) {}

  void send(const void* data, int64_t bytes, int to) {
    in_pieces(bytes, [&](int64_t begin, int count, MPI_Request* request) {
      const char* piece = static_cast<const char*>(data) + begin;
      BERTHA_MPI_CHECK(MPI_Isend(piece, count, MPI_BYTE, to, kTag, comm_.get(), request));
    });
  }
  void receive(void* data, int64_t bytes, int from) {
    in_pieces(bytes, [&](int64_t begin, int count, MPI_Request* request) {
      char* piece = static_cast<char*>(data) + begin;
      BERTHA_MPI_CHECK(MPI_Irecv(piece, count, MPI_BYTE, from, kTag, comm_.get(), request));
    });
  }
  /// Blocks: until all added messages, which belong to `call`, have been sent and received.
  void wait(CollectiveCall call) {
    comm_.wait_for(requests_, call);
    requests_.clear();
  }

 private:
  static constexpr int kTag = 0;

  template <class Start>
  void in_pieces(int64_t bytes, const Start& start) {
    constexpr int64_t kMaxBytes = int64_t{1} << 30;  // MPI counts are int
    for (int64_t begin = 0; begin < bytes; begin += kMaxBytes) {
      requests_.push_back(MPI_REQUEST_NULL);
      start(begin, static_cast<int>(std::min(bytes - begin, kMaxBytes)), &requests_.back());
    }
  }

  const Communicator& comm_;
  std::vector<MPI_Request> requests_;
};

/// The elements that one rank sums.
struct Slice {
  int64_t begin = 0;
  int64_t count = 0;
};

char* byte_address(const View& view, int64_t element) {
  return static_cast<char*>(view.data) + element * size_bytes(view.dtype);
}

void copy_bytes(void* destination, const void* source, int64_t bytes) {
  if (bytes > 0) std::memmove(destination, source, static_cast<size_t>(bytes));
}

class MpiCollectives final : public Collectives {
 public:
  MpiCollectives(const Communicator& parent, Device& device)
      : comm_(parent.get(), parent.board()), stream_(device.make_stream()) {}

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  Stream& stream() override { return *stream_; }

  void reduce_scatter_sum(const View& full, const View& shard) override {
    check_shard(*this, full, shard);
    reduce(full, equal_slices(full.elements()), shard, CollectiveCall::kReduceScatter);
  }

  void all_gather(const View& shard, const View& full) override {
    check_shard(*this, full, shard);
    const std::vector<Slice> slices = equal_slices(full.elements());
    copy_bytes(byte_address(full, own_slice(slices).begin), shard.data, shard.bytes());
    gather(full, slices, CollectiveCall::kAllGather);
  }

  void all_reduce_sum(const View& values) override {
    if (values.bytes() <= kWholeBytes) {
      const std::vector<Slice> whole(static_cast<size_t>(size()), Slice{0, values.elements()});
      reduce(values, whole, values, CollectiveCall::kAllReduce);
      return;
    }
    const std::vector<Slice> slices = equal_slices(values.elements());
    View own = values;
    own.data = byte_address(values, own_slice(slices).begin);
    own.rank = 1;
    own.extents = {own_slice(slices).count};
    reduce(values, slices, own, CollectiveCall::kAllReduce);
    gather(values, slices, CollectiveCall::kAllReduce);
  }

  void all_reduce_max(const View& values) override {
    check_maximum(values);
    const int64_t count = values.elements();
    int32_t* own = values.as<int32_t>();
    int32_t* const staging = staging_for<int32_t>(count * size());
    Messages messages(comm_);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      messages.receive(staging + peer * count, values.bytes(), peer);
      messages.send(own, values.bytes(), peer);
    }
    messages.wait(CollectiveCall::kAllReduce);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const int32_t* theirs = staging + peer * count;
      for (int64_t i = 0; i < count; ++i) own[i] = std::max(own[i], theirs[i]);
    }
  }

 private:
  std::vector<Slice> equal_slices(int64_t elements) const {
    std::vector<Slice> slices;
    for (int64_t r = 0; r < size(); ++r) {
      const int64_t begin = elements * r / size();
      slices.push_back({begin, elements * (r + 1) / size() - begin});
    }
    return slices;
  }

  const Slice& own_slice(const std::vector<Slice>& slices) const {
    return slices[static_cast<size_t>(rank())];
  }

  /// out = own slice, summed over ranks in rank order. If out overlaps `values`, it is either the
  /// own slice itself or, if each rank sums everything, all of `values`.
  void reduce(const View& values, const std::vector<Slice>& slices, const View& out,
              CollectiveCall call) {
    switch (values.dtype) {
      case DType::kF64:
        return reduce_as<double>(values, slices, out, call);
      case DType::kF32:
        return reduce_as<float>(values, slices, out, call);
      case DType::kI64:
        return reduce_as<int64_t>(values, slices, out, call);
      default:
        fail(ExitCode::kEnvironment, "the CPU backend can sum f64, f32 and i64 over ranks, not ",
             name(values.dtype), "; cast to f32 first");
    }
  }

  template <class T>
  void reduce_as(const View& values, const std::vector<Slice>& slices, const View& out,
                 CollectiveCall call) {
    const T* source = values.as<T>();
    const int64_t own_count = own_slice(slices).count;
    int64_t longest = 0;
    for (const Slice& slice : slices) longest = std::max(longest, slice.count);
    const int64_t round = std::min<int64_t>(longest, kRoundBytes / static_cast<int64_t>(sizeof(T)));
    T* const staging = staging_for<T>(round * size());

    for (int64_t begin = 0; begin < longest; begin += round) {
      const int64_t own = std::clamp<int64_t>(own_count - begin, 0, round);
      Messages messages(comm_);
      for (int peer = 0; peer < size(); ++peer) {
        T* received = staging + peer * round;
        const Slice& slice = slices[static_cast<size_t>(peer)];
        if (peer == rank()) {
          copy_bytes(received, source + slice.begin + begin, own * int64_t{sizeof(T)});
          continue;
        }
        const int64_t theirs = std::clamp<int64_t>(slice.count - begin, 0, round);
        messages.receive(received, own * int64_t{sizeof(T)}, peer);
        messages.send(source + slice.begin + begin, theirs * int64_t{sizeof(T)}, peer);
      }
      messages.wait(call);
      for (int peer = 1; peer < size(); ++peer) {
        const T* theirs = staging + peer * round;
        for (int64_t i = 0; i < own; ++i) staging[i] += theirs[i];
      }
      copy_bytes(out.as<T>() + begin, staging, own * int64_t{sizeof(T)});
    }
  }

  /// Kept between calls because new pages cost as much time as the sum itself.
  template <class T>
  T* staging_for(int64_t elements) {
    const size_t bytes = static_cast<size_t>(elements) * sizeof(T);
    if (staging_.size() < bytes) staging_.resize(bytes);
    return reinterpret_cast<T*>(staging_.data());
  }

  /// Sends every rank's slice to every other rank.
  void gather(const View& full, const std::vector<Slice>& slices, CollectiveCall call) {
    const int64_t element_bytes = size_bytes(full.dtype);
    const Slice& own = own_slice(slices);
    Messages messages(comm_);
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      const Slice& theirs = slices[static_cast<size_t>(peer)];
      messages.receive(byte_address(full, theirs.begin), theirs.count * element_bytes, peer);
      messages.send(byte_address(full, own.begin), own.count * element_bytes, peer);
    }
    messages.wait(call);
  }

  Communicator comm_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::byte> staging_;
};

}  // namespace

std::unique_ptr<Collectives> make_mpi_collectives(const Communicator& parent, Device& device) {
  return std::make_unique<MpiCollectives>(parent, device);
}

}  // namespace bertha

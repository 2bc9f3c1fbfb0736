#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>
#include <list>
#include <span>
#include <vector>

#include "kernels/base/cuda/cuda_context.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

/// A part of one tensor that one block updates. Chunks end at multiples of kLambChunkElements of
/// the shard, so that all but the first and the last of a segment are whole and aligned.
struct LambChunk {
  int64_t begin = 0;  // elements, inside the shard
  int32_t elements = 0;
  int32_t tensor = 0;
  int32_t decay = 0;
  int32_t reserved = 0;
};

inline constexpr int64_t kLambChunkElements = 8192;

/// The chunks of one tensor, which are successive.
struct LambChunkRange {
  int32_t first = 0;
  int32_t count = 0;
};

/// The chunks of a shard in device memory, ordered by tensor, then by address. Large tensors come
/// first.
struct LambChunkTable {
  const LambChunk* chunks = nullptr;             // [chunks_count]
  const LambChunkRange* of_tensor = nullptr;     // [X]
  uint32_t* arrivals = nullptr;                  // [X]: zero between kernels, see is_last_block
  unsigned long long* step_of_tensor = nullptr;  // [X]: scratch of LambStep
  int64_t chunks_count = 0;
  int64_t large_count = 0;  // chunks of large tensors
  int64_t tensors = 0;      // X
};

/// Chunk tables by content. The segments of an optimizer stay the same for a whole run: the first
/// call copies them, later calls compare some hundred segments on the host.
class LambChunkTables {
 public:
  explicit LambChunkTables(const CudaContext& context)
      : device_(context.device), stream_(context.stream) {}

  /// The table of these segments for X = `tensors`; valid as long as this object. Tensors with more
  /// than `most_chunks` are large.
  LambChunkTable table_of(std::span<const LambSegment> segments, int64_t tensors,
                          int64_t most_chunks = std::numeric_limits<int64_t>::max());

 private:
  struct Entry {
    std::vector<LambSegment> segments;
    int64_t most_chunks;
    LambChunkTable table = {};
    Buffer memory = {};
  };

  void upload(Entry& entry, std::vector<LambChunk> chunks);

  CudaDevice& device_;
  cudaStream_t stream_;
  std::list<Entry> entries_;
};

/// Pure: the chunks of the segments, ordered by tensor, then by address.
std::vector<LambChunk> make_lamb_chunks(std::span<const LambSegment> segments);

}  // namespace bertha

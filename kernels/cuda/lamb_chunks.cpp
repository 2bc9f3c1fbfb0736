#include "kernels/cuda/lamb_chunks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/base/cuda/cuda_check.h"

namespace bertha {
namespace {

template <class T>
size_t bytes_of(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

}  // namespace

std::vector<LambChunk> make_lamb_chunks(std::span<const LambSegment> segments) {
  std::vector<LambChunk> chunks;
  for (const LambSegment& segment : segments) {
    for (int64_t begin = segment.begin; begin < segment.end;) {
      const int64_t whole = (begin / kLambChunkElements + 1) * kLambChunkElements;
      const int64_t end = std::min(whole, segment.end);
      chunks.push_back({.begin = begin,
                        .elements = static_cast<int32_t>(end - begin),
                        .tensor = static_cast<int32_t>(segment.tensor),
                        .decay = segment.decay ? 1 : 0});
      begin = end;
    }
  }
  std::ranges::stable_sort(
      chunks, [](const LambChunk& a, const LambChunk& b) { return a.tensor < b.tensor; });
  return chunks;
}

LambChunkTable LambChunkTables::table_of(std::span<const LambSegment> segments, int64_t tensors) {
  for (const Entry& entry : entries_) {
    if (entry.table.tensors == tensors && std::ranges::equal(entry.segments, segments)) {
      return entry.table;
    }
  }
  const std::vector<LambChunk> chunks = make_lamb_chunks(segments);
  BERTHA_CHECK(tensors < std::numeric_limits<int32_t>::max() &&
                   chunks.size() < size_t{std::numeric_limits<int32_t>::max()},
               tensors, " tensors in ", chunks.size(), " chunks, want less than 2^31 of each");
  Entry entry{.segments = {segments.begin(), segments.end()}, .table = {.tensors = tensors}};
  upload(entry, chunks);
  return entries_.emplace_back(std::move(entry)).table;
}

// One block of memory: chunks (whose size is a multiple of 8), first_chunk, arrivals.
void LambChunkTables::upload(Entry& entry, const std::vector<LambChunk>& chunks) {
  const auto tensors = static_cast<size_t>(entry.table.tensors);
  std::vector<int32_t> first_chunk(tensors + 1);
  for (const LambChunk& chunk : chunks) first_chunk[static_cast<size_t>(chunk.tensor) + 1] += 1;
  for (size_t x = 0; x < tensors; ++x) first_chunk[x + 1] += first_chunk[x];
  entry.memory = device_.allocate(static_cast<int64_t>(bytes_of(chunks) + bytes_of(first_chunk) +
                                                       tensors * sizeof(uint32_t)));  // zeroed
  char* memory = static_cast<char*>(entry.memory.data());
  if (!chunks.empty()) {
    BERTHA_CUDA_CHECK(
        cudaMemcpyAsync(memory, chunks.data(), bytes_of(chunks), cudaMemcpyDefault, stream_));
  }
  BERTHA_CUDA_CHECK(cudaMemcpyAsync(memory + bytes_of(chunks), first_chunk.data(),
                                    bytes_of(first_chunk), cudaMemcpyDefault, stream_));
  entry.table.chunks = reinterpret_cast<const LambChunk*>(memory);
  entry.table.first_chunk = reinterpret_cast<const int32_t*>(memory + bytes_of(chunks));
  entry.table.arrivals =
      reinterpret_cast<uint32_t*>(memory + bytes_of(chunks) + bytes_of(first_chunk));
  entry.table.chunks_count = static_cast<int64_t>(chunks.size());
}

}  // namespace bertha

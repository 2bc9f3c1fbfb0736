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

LambChunkTable LambChunkTables::table_of(std::span<const LambSegment> segments, int64_t tensors,
                                         int64_t most_chunks) {
  for (const Entry& entry : entries_) {
    if (entry.table.tensors == tensors && entry.most_chunks == most_chunks &&
        std::ranges::equal(entry.segments, segments)) {
      return entry.table;
    }
  }
  std::vector<LambChunk> chunks = make_lamb_chunks(segments);
  BERTHA_CHECK(tensors < std::numeric_limits<int32_t>::max() &&
                   chunks.size() < size_t{std::numeric_limits<int32_t>::max()},
               tensors, " tensors in ", chunks.size(), " chunks, want less than 2^31 of each");
  Entry entry{.segments = {segments.begin(), segments.end()},
              .most_chunks = most_chunks,
              .table = {.tensors = tensors}};
  upload(entry, std::move(chunks));
  return entries_.emplace_back(std::move(entry)).table;
}

// One block of memory: chunks and steps (whose sizes are multiples of 8), ranges, arrivals.
void LambChunkTables::upload(Entry& entry, std::vector<LambChunk> chunks) {
  const auto tensors = static_cast<size_t>(entry.table.tensors);
  std::vector<LambChunkRange> of_tensor(tensors);
  const auto range_of = [&](const LambChunk& chunk) -> LambChunkRange& {
    return of_tensor[static_cast<size_t>(chunk.tensor)];
  };
  for (const LambChunk& chunk : chunks) range_of(chunk).count += 1;
  const auto others = std::ranges::stable_partition(
      chunks, [&](const LambChunk& chunk) { return range_of(chunk).count > entry.most_chunks; });
  for (size_t i = chunks.size(); i > 0; --i) {
    range_of(chunks[i - 1]).first = static_cast<int32_t>(i - 1);
  }

  entry.table.chunks_count = std::ssize(chunks);
  entry.table.large_count = others.begin() - chunks.begin();
  const size_t step_bytes = tensors * sizeof(unsigned long long);
  entry.memory = device_.allocate(static_cast<int64_t>(
      bytes_of(chunks) + step_bytes + bytes_of(of_tensor) + tensors * sizeof(uint32_t)));  // zeroed
  char* at = static_cast<char*>(entry.memory.data());
  const auto copy = [&](const auto& values) {
    if (values.empty()) return;
    BERTHA_CUDA_CHECK(
        cudaMemcpyAsync(at, values.data(), bytes_of(values), cudaMemcpyDefault, stream_));
  };
  copy(chunks);
  entry.table.chunks = reinterpret_cast<const LambChunk*>(at);
  at += bytes_of(chunks);
  entry.table.step_of_tensor = reinterpret_cast<unsigned long long*>(at);
  at += step_bytes;
  copy(of_tensor);
  entry.table.of_tensor = reinterpret_cast<const LambChunkRange*>(at);
  at += bytes_of(of_tensor);
  entry.table.arrivals = reinterpret_cast<uint32_t*>(at);
}

}  // namespace bertha

#pragma once

#include <cuda_runtime_api.h>

#include <array>

namespace bertha {

/// Streams on which the groups of one attention run side by side, so that the last thread blocks of
/// one group and the first of the next share the GPU. Lane 0 is the stream of the operations.
///
/// Exact     fork() orders the lanes behind all work enqueued before; join() orders all work
///           enqueued later behind the lanes. Both are events: nothing waits on the host, and the
///           pair can be captured into a graph.
class AttentionLanes {
 public:
  /// Groups by 128 tokens of at most 512 are four.
  static constexpr int kLanes = 4;

  AttentionLanes(int device_ordinal, cudaStream_t stream);
  ~AttentionLanes();
  AttentionLanes(const AttentionLanes&) = delete;
  AttentionLanes& operator=(const AttentionLanes&) = delete;

  /// Opens the lanes that `items` pieces of work need.
  void fork(int items);
  /// Stream of piece `item`, below the count given to fork().
  cudaStream_t stream(int item) const { return streams_[static_cast<size_t>(item % kLanes)]; }
  void join();

 private:
  int open_ = 1;
  std::array<cudaStream_t, kLanes> streams_{};
  std::array<cudaEvent_t, kLanes> events_{};  // 0: fork, others: end of that lane
};

}  // namespace bertha

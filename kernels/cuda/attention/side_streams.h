#pragma once

#include <cuda_runtime_api.h>

#include <array>

#include "kernels/base/cuda/cuda_context.h"

namespace bertha {

/// Streams on which the groups of one attention run concurrently, so that the last thread blocks of
/// one group and the first of the next share the GPU. Stream 0 is the stream of the operations.
///
/// Exact     fork() orders the side streams after all work enqueued before; join() orders all work
///           enqueued later after them. Both are events: nothing waits on the host, and the pair
///           can be captured into a graph.
class SideStreams {
 public:
  explicit SideStreams(const CudaContext& context);
  ~SideStreams();
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;

  /// Starts the streams that `items` launches need.
  void fork(int items);
  /// Stream of launch `item`, below the count given to fork().
  cudaStream_t stream(int item) const { return streams_[static_cast<size_t>(item % kStreams)]; }
  void join();

 private:
  static constexpr int kStreams = 4;  // groups by 128 tokens of at most 512

  int open_ = 1;
  std::array<cudaStream_t, kStreams> streams_{};
  std::array<cudaEvent_t, kStreams> events_{};  // 0: fork, others: end of that stream
};

}  // namespace bertha

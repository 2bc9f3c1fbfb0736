#pragma once

#include <cstdint>

#include "kernels/base/cuda/reduce.cuh"

namespace bertha {

/// A stage of a ring buffer in shared memory, and the phase of its mbarriers: consumers wait for
/// "full" with `parity`, the producer waits for "empty" with the other one.
template <int kStages>
struct PipelineState {
  int index = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++index < kStages) return;
    index = 0;
    parity ^= 1;
  }
  /// The state `stages` further, at most a round.
  __device__ __forceinline__ PipelineState after(int stages) const {
    PipelineState state{index + stages, parity};
    if (state.index >= kStages) {
      state.index -= kStages;
      state.parity ^= 1;
    }
    return state;
  }
  /// Returns the value in a form that the compiler treats as uniform. All lanes call it.
  __device__ __forceinline__ PipelineState warp_uniform() const {
    return {__shfl_sync(kFullWarp, index, 0), __shfl_sync(kFullWarp, parity, 0)};
  }
};

}  // namespace bertha

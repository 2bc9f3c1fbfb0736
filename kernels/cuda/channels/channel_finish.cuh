#pragma once

#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"

namespace bertha {

// What follows from a channel's sums. A Finish has
//   Sum, kQuantities, kTables       what comes in, and how many constants of a channel go out
//   Inputs, load(channel)           what else it needs, older than the kernel that sums
//   (channel, inputs, sums, writes, constants)
//                                   computes the constants, and with `writes`, which is true once
//                                   for a channel, stores the operation's results
// and is passed to kernels by value.

inline constexpr int kFinishThreads = 256;
inline constexpr int kFinishChannels = 8;  // of a block: a sector of 32 bytes at least
// Splits of a thread on their way at once. Measured: 16, of which most threads have fewer, are 4 us
// slower at 2,048 x 7 x 7 channels-last backward: their registers keep the kernel from being placed
// beside the one before.
inline constexpr int kFinishInFlight = 4;

/// Room for the constants of a channel; an array has an element at least.
template <class Finish>
inline constexpr int kConstants = Finish::kTables > 0 ? Finish::kTables : 1;

/// Threads next to each other take channels, the others splits; partial [splits, kQuantities, C],
/// tables [kTables, stride].
template <class Finish>
__global__ void __launch_bounds__(kFinishThreads)
    finish_channels_kernel(Finish finish, const typename Finish::Sum* partial, int64_t splits,
                           int64_t channels, float* tables, int64_t stride) {
  using Sum = typename Finish::Sum;
  constexpr int kQuantities = Finish::kQuantities;
  constexpr int kWarps = kFinishThreads / kWarpThreads;
  __shared__ Sum of_warp[kWarps][kQuantities][kFinishChannels];
  begin_next_kernel();
  const int thread = static_cast<int>(threadIdx.x);
  const int own = thread % kFinishChannels;
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kFinishChannels + own;
  typename Finish::Inputs inputs{};
  if (thread < kFinishChannels && channel < channels) inputs = finish.load(channel);
  wait_for_kernel_before();
  Sum sums[kQuantities] = {};
  if (channel < channels) {
    constexpr int kBeside = kFinishThreads / kFinishChannels;
    for (int64_t split = thread / kFinishChannels; split < splits;
         split += kFinishInFlight * kBeside) {
      Sum of_split[kFinishInFlight][kQuantities];
#pragma unroll
      for (int k = 0; k < kFinishInFlight; ++k) {
        const int64_t of = split + k * kBeside;
#pragma unroll
        for (int q = 0; q < kQuantities; ++q) {
          of_split[k][q] =
              of < splits ? partial[(of * kQuantities + q) * channels + channel] : Sum{0};
        }
      }
#pragma unroll
      for (int k = 0; k < kFinishInFlight; ++k) {
#pragma unroll
        for (int q = 0; q < kQuantities; ++q) sums[q] += of_split[k][q];
      }
    }
  }
#pragma unroll
  for (int q = 0; q < kQuantities; ++q) {
#pragma unroll
    for (int step = kWarpThreads / 2; step >= kFinishChannels; step /= 2) {
      sums[q] += __shfl_xor_sync(kFullWarp, sums[q], step);
    }
    if (thread % kWarpThreads < kFinishChannels) of_warp[thread / kWarpThreads][q][own] = sums[q];
  }
  __syncthreads();
  if (thread >= kFinishChannels || channel >= channels) return;
#pragma unroll
  for (int q = 0; q < kQuantities; ++q) {
    sums[q] = Sum{0};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sums[q] += of_warp[warp][q][own];
  }
  float constants[kConstants<Finish>];
  finish(channel, inputs, sums, true, constants);
#pragma unroll
  for (int t = 0; t < Finish::kTables; ++t) tables[t * stride + channel] = constants[t];
}

/// Behind a kernel of launch_channel_sums, which has left the partial sums.
template <class Finish>
void finish_channels(const CudaContext& context, const Finish& finish,
                     const typename Finish::Sum* partial, int64_t splits, int64_t channels,
                     float* tables, int64_t stride) {
  const dim3 blocks(blocks_for(channels, kFinishChannels, INT32_MAX));
  launch_dependent(context.stream, finish_channels_kernel<Finish>, {blocks, kFinishThreads}, finish,
                   partial, splits, channels, tables, stride);
}

}  // namespace bertha

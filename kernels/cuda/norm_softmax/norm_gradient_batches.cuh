#pragma once

#include "kernels/cuda/common/dependent_launch.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/norm_softmax/held_norm.cuh"
#include "kernels/cuda/tensor_core/barrier.cuh"

namespace bertha {

// LayerNorm backward of rows of 16 bits and odd length that a warp holds. Eight neighbouring rows are
// whole words of 16 bytes whatever their length: they come to shared memory as one bulk copy of each
// input, a warp passes over each, in single elements, leaves dx where dy was, and another bulk copy
// takes all eight away. Single elements so go through shared memory alone, and what is on its way
// costs no registers.

inline constexpr int kBatchRows = 8;    // of a block, one for each warp
inline constexpr int kBatchStages = 4;  // batches in shared memory
inline constexpr int kBatchThreads = kBatchRows * kWarpThreads;
inline constexpr int kFewBatchElements = 9;  // of a thread
inline constexpr int kMostBatchElements = 17;

/// Whether rows of `columns` are compiled in.
constexpr bool has_gradient_batches(int64_t columns) {
  return columns > (kFewBatchElements - 1) * kWarpThreads &&
         columns <= kMostBatchElements * kWarpThreads;
}

/// Elements of a batch's place, where it lies as far behind a line as in memory.
__host__ __device__ constexpr int batch_slot(int columns) {
  return (kBatchRows * columns + 2 * (kCopyLineElements - 1)) / kCopyLineElements *
         kCopyLineElements;
}

/// kElements: of a thread, of which it has all but perhaps the last two.
template <class T, int kElements>
__global__ void __launch_bounds__(kBatchThreads, 2)
    norm_gradient_batches_kernel(const __grid_constant__ HeldNormGradient<T> p, int64_t rows,
                                 int columns) {
  extern __shared__ __align__(kCopyLineBytes) uint4 batches[];
  __shared__ uint64_t barriers[2 * kBatchStages];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpThreads;
  const int warp = thread / kWarpThreads;
  const auto has = [&](int k) { return k < kElements - 2 || k * kWarpThreads + lane < columns; };
  T* const slots = reinterpret_cast<T*>(batches);
  const int slot = batch_slot(columns);
  const auto full = [&](int stage) { return shared_address(&barriers[stage]); };
  const auto done = [&](int stage) { return shared_address(&barriers[kBatchStages + stage]); };
  const int64_t all = (rows + kBatchRows - 1) / kBatchRows;
  const int turns = static_cast<int>((all - blockIdx.x + gridDim.x - 1) / gridDim.x);
  const auto first_row = [&](int turn) {
    return (blockIdx.x + static_cast<int64_t>(turn) * gridDim.x) * kBatchRows;
  };
  const auto place_of = [&](int stage, int64_t row) {
    return slots + 2 * stage * slot + row * columns % kCopyLineElements;
  };
  // Elements of a batch, and those of them that are whole words: the matrix's last ones go by hand.
  const auto elements_of = [&](int64_t row) {
    return (rows - row < kBatchRows ? static_cast<int>(rows - row) : kBatchRows) * columns;
  };
  const auto request = [&](int turn) {
    if (turn >= turns) return;
    const int stage = turn % kBatchStages;
    const int64_t row = first_row(turn);
    const int there = elements_of(row);
    const int copied = there / 8 * 8;
    T* const to = place_of(stage, row);
    for (int k = 0; k < 2; ++k) {
      for (int i = copied; i < there; ++i) to[k * slot + i] = p.inputs[k][row * columns + i];
    }
    const uint32_t bytes = static_cast<uint32_t>(copied) * 2;
    barrier_arrive_expecting(full(stage), 2 * bytes);
    if (bytes == 0) return;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      copy_bytes_async(shared_address(to + k * slot), p.inputs[k] + row * columns, bytes,
                       full(stage));
    }
  };
  const auto store = [&](int turn) {
    const int stage = turn % kBatchStages;
    barrier_wait(done(stage), static_cast<uint32_t>(turn / kBatchStages) & 1);
    const int64_t row = first_row(turn);
    const int there = elements_of(row);
    const int copied = there / 8 * 8;
    const T* const from = place_of(stage, row);
    T* const to = p.output + row * columns;
    for (int i = copied; i < there; ++i) to[i] = from[i];
    if (copied > 0) store_bytes_async(to, shared_address(from), static_cast<uint32_t>(copied) * 2);
  };
  if (thread == 0) {
    for (int stage = 0; stage < kBatchStages; ++stage) {
      barrier_init(full(stage), 1);
      barrier_init(done(stage), kBatchRows * kWarpThreads);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (thread == 0) {
    for (int turn = 0; turn < kBatchStages; ++turn) request(turn);
  }

  float gamma[kElements];
#pragma unroll
  for (int k = 0; k < kElements; ++k) {
    gamma[k] = p.gamma != nullptr && has(k) ? to_float(p.gamma[k * kWarpThreads + lane]) : 1.0f;
  }
  float dgamma[kElements] = {};
  float dbeta[kElements] = {};
  const float per_column = 1.0f / static_cast<float>(columns);
  auto next = p.of_row(first_row(0) + warp, rows);
  int stage = 0;
  uint32_t parity = 0;
  for (int turn = 0; turn < turns; ++turn) {
    const auto row = next;
    next = p.of_row(first_row(turn + 1) + warp, rows);
    T* const at = place_of(stage, first_row(turn)) + warp * columns + lane;
    barrier_wait(full(stage), parity);
    if (first_row(turn) + warp < rows) {
      float dy[kElements];
      float x[kElements];
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        dy[k] = 0.0f;
        x[k] = 0.0f;
        if (!has(k)) continue;
        dy[k] = to_float(at[k * kWarpThreads]);
        x[k] = to_float(at[slot + k * kWarpThreads]);
      }
      float sums[2] = {};  // of g = dy * gamma, and of g * normalized
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        x[k] -= row.mean;
        const float of_gamma = dy[k] * (x[k] * row.rstd);
        dgamma[k] += of_gamma;
        dbeta[k] += dy[k];
        dy[k] *= gamma[k];
        sums[0] += dy[k];
        sums[1] = fmaf(of_gamma, gamma[k], sums[1]);
      }
      reduce_lanes(sums, kWarpThreads, Add());
      // dx = rstd * (g - mean(g) - normalized * mean(g * normalized))
      const float constant = -row.rstd * sums[0] * per_column;
      const float slope = -row.rstd * row.rstd * sums[1] * per_column;
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        if (!has(k)) continue;
        at[k * kWarpThreads] = from_float<T>(fmaf(x[k], slope, fmaf(dy[k], row.rstd, constant)));
      }
    }
    fence_proxy_async();
    barrier_arrive(done(stage));  // every lane: racecheck does not follow one for its warp
    if (thread == 0) {
      // A turn later others seldom have to be waited for.
      if (turn >= 2) {
        wait_for_stores();
        request(turn - 2 + kBatchStages);
      }
      if (turn >= 1) store(turn - 1);
    }
    if (++stage == kBatchStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  begin_next_kernel();
  if (thread == 0 && turns > 0) {
    store(turns - 1);
    wait_for_stores();
  }

  // The sums of the warps, one after the other, in shared memory.
  __syncthreads();
  float* const parts = reinterpret_cast<float*>(batches);  // [warps, 2, columns]
#pragma unroll
  for (int k = 0; k < kElements; ++k) {
    if (!has(k)) continue;
    float* const own = parts + 2 * warp * columns + k * kWarpThreads + lane;
    own[0] = dgamma[k];
    own[columns] = dbeta[k];
  }
  __syncthreads();
  float* const to = p.partial + static_cast<int64_t>(blockIdx.x) * 2 * columns;
  for (int i = thread; i < 2 * columns; i += kBatchThreads) {
    float sum = 0.0f;
#pragma unroll
    for (int other = 0; other < kBatchRows; ++other) sum += parts[2 * other * columns + i];
    to[i] = sum;
  }
}

template <int kElements, class T, class TakePartial>
void launch_batches(const CudaContext& context, HeldNormGradient<T> norm, int64_t rows,
                    int64_t columns, const TakePartial& take_partial) {
  const auto kernel = &norm_gradient_batches_kernel<T, kElements>;
  // Batches have dy and x, 2 bytes an element; then the sums of the warps, of 4 bytes.
  static_assert(kBatchStages * 2 * 2 >= 2 * 4);
  const int64_t bytes = int64_t{kBatchStages} * 2 * 2 * batch_slot(static_cast<int>(columns));
  allow_shared_bytes(kernel, bytes);
  int resident = 0;
  BERTHA_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kBatchThreads,
                                                                  static_cast<size_t>(bytes)));
  const unsigned blocks = blocks_for(rows, kBatchRows, int64_t{resident} * context.sm_count);
  norm.partial = take_partial(blocks);
  kernel<<<blocks, kBatchThreads, static_cast<size_t>(bytes), context.stream>>>(
      norm, rows, static_cast<int>(columns));
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

/// Matrices at 16-byte words, of at least one row and widths of has_gradient_batches().
/// take_partial(blocks) makes room for as many partial sums.
template <class T, class TakePartial>
void launch_norm_gradient_batches(const CudaContext& context, const HeldNormGradient<T>& norm,
                                  int64_t rows, int64_t columns, const TakePartial& take_partial) {
  switch ((columns + kWarpThreads - 1) / kWarpThreads) {
    case 9:
      return launch_batches<9>(context, norm, rows, columns, take_partial);
    case 10:
    case 11:
      return launch_batches<11>(context, norm, rows, columns, take_partial);
    case 12:
    case 13:
      return launch_batches<13>(context, norm, rows, columns, take_partial);
    case 14:
    case 15:
      return launch_batches<15>(context, norm, rows, columns, take_partial);
    default:
      return launch_batches<17>(context, norm, rows, columns, take_partial);
  }
}

}  // namespace bertha

#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/rows/cuda/norm_softmax/layernorm_operands.cuh"
#include "kernels/rows/cuda/norm_softmax/row_words.cuh"

namespace bertha {

// LayerNorm backward of 16-bit matrices of 8 to 1,017 columns that begin anywhere (row_words.cuh).
//
// A persistent grid, one block on an SM. A power of two of lanes shares a row, and a thread keeps
// the same columns of all rows that it sees: gamma and the column sums stay in registers. So that
// a row's words match these columns, the rows of a block lie a multiple of 8 apart. Each thread
// copies its own words of the next rows into a ring of shared memory, which so needs no barrier.
//
// Bound by instructions: 49,152 x 513 bf16 take 64 us on an H200, 62 % of a copy of as many bytes,
// single elements in registers 107; x 1,001 take 95 us, 78 %. Aligned rows from 256 columns on take
// up to 9 % longer than by teams (kernels/rows/measured/rows.md).

inline constexpr int64_t kMostRingColumns = 1024;
inline constexpr int kRingPad = 4;                                // words, against bank conflicts
inline constexpr int64_t kRingBytes[] = {96 * 1024, 220 * 1024};  // portable, sm_90a

template <class Parameter, int kVecs>
inline constexpr int kRingThreads = kVecs * sizeof(Parameter) < 6 ? 512 : 384;
/// Rows of a team in flight or at work.
constexpr int ring_stages(bool is_sm90a_code, int vecs, int threads) {
  const auto most = static_cast<int>(kRingBytes[is_sm90a_code ? 1 : 0] / (32 * vecs * threads));
  return most < 8 ? most : 8;
}

/// Copies 16 bytes, those from `bytes` on as zeros.
__device__ __forceinline__ void copy_word_async(void* to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(bytes)
               : "memory");
}

template <class Norm, int kLanes, int kVecs, int kThreads>
__global__ void __launch_bounds__(kThreads, 1)
    layernorm_bwd_ring_kernel(const __grid_constant__ Norm p, int64_t rows, int columns) {
  using T = typename Norm::Element;
  using Parameter = std::remove_cvref_t<decltype(*p.gamma)>;
  constexpr int kTeams = kThreads / kLanes;  // of lanes, with a row each
  constexpr int kStages = ring_stages(kIsSm90aCode, kVecs, kThreads);
  constexpr bool kKeeps = kVecs < 4;  // a row in registers between its passes
  extern __shared__ uint4 ring[];     // [kStages][dy, x][kVecs][kThreads]
  begin_next_kernel();
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes;
  const int64_t distance = gridDim.x;
  const int64_t step = distance * kTeams;
  const int lead = lead_of(p.dy.matrix + int64_t{blockIdx.x} * columns);
  const auto column = [&](int k) { return (k * kLanes + lane) * kVecSize - lead; };
  const auto has = [&](int k) { return column(k) < columns; };
  const auto place = [&](int64_t row, int k) {
    return RowPlace{row, column(k), row * columns + column(k)};
  };
  const auto word = [&](int stage, int tensor, int k) {
    return ring + ((stage * 2 + tensor) * kVecs + k) * kThreads + thread;
  };
  const auto* const x_matrix = reinterpret_cast<const T*>(p.x.matrix);
  const auto request = [&](int stage, int64_t row) {
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      if (row >= rows || !has(k)) continue;
      const int64_t at = place(row, k).dense;
      if (at >= 0) {
        const int bytes = min(kVecSize, columns - column(k)) * static_cast<int>(sizeof(T));
        copy_word_async(word(stage, 0, k), p.dy.matrix + at, bytes);
        copy_word_async(word(stage, 1, k), x_matrix + at, bytes);
      } else {
        copy_outer_words(reinterpret_cast<T*>(word(stage, 0, k)), p.dy.matrix, at, kVecSize,
                         columns);
        copy_outer_words(reinterpret_cast<T*>(word(stage, 1, k)), x_matrix, at, kVecSize, columns);
      }
    }
    __pipeline_commit();
  };
  struct Statistics {
    float mean;
    float rstd;
  };
  const auto statistics_of = [&](int64_t row) {
    return row < rows ? Statistics{p.mean[row], p.rstd[row]} : Statistics{};
  };

  // Neighbouring rows go to neighbouring blocks. The lanes of a warp take as many turns.
  const int64_t ahead = thread % kWarpThreads / kLanes * distance;
  int64_t first = thread / kWarpThreads * (kWarpThreads / kLanes) * distance + blockIdx.x;
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) request(stage, first + ahead + stage * step);
  Statistics next = statistics_of(first + ahead);
  Vec<Parameter, kVecSize> gamma[kVecs];
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      const int at = column(k) + i;
      gamma[k].elem[i] = from_float<Parameter>(has_column(at, columns) ? 1.0f : 0.0f);
      if (p.gamma != nullptr && has_column(at, columns)) gamma[k].elem[i] = p.gamma[at];
    }
  }
  const float per_column = 1.0f / static_cast<float>(columns);
  float dgamma[kVecs][kVecSize] = {};
  float dbeta[kVecs][kVecSize] = {};
  int stage = 0;
  for (; first < rows; first += step) {
    const int64_t row = first + ahead;
    request(stage == 0 ? kStages - 1 : stage - 1, row + (kStages - 1) * step);
    const Statistics own = next;
    next = statistics_of(row + step);
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
    const bool exists = row < rows;
    const auto read = [&](int tensor, int k) {
      Vec<T, kVecSize> vec{};
      if (exists && has(k)) vec = load_vec(reinterpret_cast<const T*>(word(stage, tensor, k)));
      // Beyond the row are the zeros of the copy, before it what the row before has.
      if (k == 0 && lane == 0 && lead > 0) keep_columns(vec, -lead, columns, 0);
      return vec;
    };
    Vec<T, kVecSize> dy[kVecs];
    Vec<T, kVecSize> x[kVecs];
    float sums[2] = {};  // of g = dy * gamma, and of g * normalized
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      dy[k] = read(0, k);
      x[k] = read(1, k);
    }
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      float v[2][kVecSize];
      numbers_of(p.dy, place(row, k), dy[k], v[0]);
      numbers_of(p.x, place(row, k), x[k], v[1]);
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        const float of_gamma = v[0][i] * (v[1][i] - own.mean);  // times rstd
        sums[0] = fmaf(v[0][i], element(gamma[k], i), sums[0]);
        sums[1] = fmaf(of_gamma, element(gamma[k], i), sums[1]);
        dgamma[k][i] = fmaf(of_gamma, own.rstd, dgamma[k][i]);
        dbeta[k][i] += v[0][i];
      }
    }
    reduce_lanes(sums, kLanes, Add());
    // dx = rstd * (g - mean(g) - normalized * mean(g * normalized))
    const float constant = -own.rstd * sums[0] * per_column;
    const float slope = -own.rstd * own.rstd * own.rstd * sums[1] * per_column;
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      if (!exists || !has(k)) continue;
      if constexpr (kKeeps) {
        keep_packed(dy[k]);
        keep_packed(x[k]);
      } else {
        dy[k] = read(0, k);
        x[k] = read(1, k);
      }
      keep_packed(gamma[k]);
      float v[2][kVecSize];
      float dx[kVecSize];
      numbers_of(p.dy, place(row, k), dy[k], v[0]);
      numbers_of(p.x, place(row, k), x[k], v[1]);
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        dx[i] = fmaf(v[0][i] * element(gamma[k], i), own.rstd,
                     fmaf(v[1][i] - own.mean, slope, constant));
      }
      put_columns<true>(p.dx, place(row, k), columns, dx);
    }
    if (++stage == kStages) stage = 0;
  }

  // The sums of the teams, in the memory of the rows.
  constexpr int kStride = kThreads + kRingPad;
  auto* const of_teams = reinterpret_cast<float*>(ring);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kVecs; ++k) {
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      of_teams[(k * kVecSize + i) * kStride + thread] = dgamma[k][i];
      of_teams[((kVecs + k) * kVecSize + i) * kStride + thread] = dbeta[k][i];
    }
  }
  __syncthreads();
  for (int at = thread; at < 2 * columns; at += kThreads) {
    const int quantity = at < columns ? 0 : 1;
    const int cell = at - quantity * columns + lead;
    const int k = quantity * kVecs + cell / (kVecSize * kLanes);
    const float* const from =
        of_teams + (k * kVecSize + cell % kVecSize) * kStride + cell / kVecSize % kLanes;
    float total = 0;
#pragma unroll 8
    for (int team = 0; team < kTeams; ++team) total += from[team * kLanes];
    p.partial[int64_t{2} * blockIdx.x * columns + at] = total;
  }
}

/// There is at least one row; 8 columns or more, at most kMostRingColumns with the lead.
/// take_partial(blocks) allocates as many partial sums.
template <int kLanes, int kVecs, class Norm, class TakePartial>
void launch_layernorm_bwd_lanes(const CudaContext& context, Norm p, int64_t rows, int64_t columns,
                                const TakePartial& take_partial) {
  constexpr int kThreads = kRingThreads<std::remove_cvref_t<decltype(*p.gamma)>, kVecs>;
  const int64_t period = lead_period(columns);
  int64_t blocks = blocks_for(rows, 1, context.sm_count);
  if (blocks >= period) blocks -= blocks % period;
  p.partial = take_partial(static_cast<unsigned>(blocks));
  const int stages = ring_stages(context.device.has_sm90a_code(), kVecs, kThreads);
  const int64_t bytes = std::max(int64_t{32} * kThreads * kVecs * stages,
                                 int64_t{64} * (kThreads + kRingPad) * kVecs);
  launch_kernel(context.stream, layernorm_bwd_ring_kernel<Norm, kLanes, kVecs, kThreads>,
                {blocks, kThreads, bytes}, p, rows, static_cast<int>(columns));
}

template <class Norm, class TakePartial>
void launch_layernorm_bwd_ring(const CudaContext& context, const Norm& p, int64_t rows,
                               int64_t columns, const TakePartial& take) {
  const int64_t lead = lead_period(columns) > 1 ? kMostLead : lead_of(p.dy.matrix);
  const auto launch = [&]<int kLanes, int kVecs>() {
    launch_layernorm_bwd_lanes<kLanes, kVecs>(context, p, rows, columns, take);
  };
  const int64_t vecs = (columns + lead + kVecSize - 1) / kVecSize;
  if (vecs <= 8) return launch.template operator()<8, 1>();
  if (vecs <= 16) return launch.template operator()<8, 2>();
  if (vecs <= 32) return launch.template operator()<16, 2>();
  if (vecs <= 64) return launch.template operator()<32, 2>();
  if (vecs <= 96) return launch.template operator()<32, 3>();
  launch.template operator()<32, 4>();
}

}  // namespace bertha

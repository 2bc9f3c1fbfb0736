#pragma once

#include "kernels/rows/cuda/norm_softmax/block_per_row.cuh"
#include "kernels/rows/cuda/norm_softmax/layernorm_operands.cuh"

namespace bertha {

// LayerNorm forward, with or without a residual, of rows of a multiple of 8 columns up to 16,384
// (f32: 8,192), at 16-byte aligned addresses, on block_per_row.cuh.
//
// A block holds its row in registers: one pass over memory and one reduction. gamma and beta come
// from the L1 cache after the reduction: loaded before it they would take registers, and with them
// resident blocks, which matter more.
//
// At 4,096 columns generic rows take 65 % longer, a ring in shared memory 13 to 39 %; at 16,384 the
// ring 11 %.
//
// Bound by memory: 49,152 x 8,192 f16 take 389 us on an H200, 98 % of a copy of as many bytes
// (kernels/rows/measured/rows.md).

template <class T>
inline constexpr int64_t kMostBlockRowNormColumns = sizeof(T) == 2 ? 16'384 : 8'192;

template <class Load, class Store, class Parameter, bool kHasResidual>
struct BlockRowNorm : OneInput<Load> {
  Store store;  // of y
  NormForward<Load, Store, Parameter> p;

  __device__ static uint32_t padding() { return 0; }

  template <class Row>
  __device__ __forceinline__ void run(Row& row) const {
    if constexpr (kHasResidual) row.add(p.residual);
    // Sums are taken around the mean of 32 elements, which is at most sqrt(n / 32) deviations from
    // the mean of all n: a large mean costs nothing, and the variance loses at most a factor
    // n / 32, with usual rows none.
    float sample = row.element_of_lane(p.x);
    if constexpr (kHasResidual)
      sample += row.element_of_lane(MatrixLoad<typename Load::Element>{p.residual});
    float pivot = warp_sum(sample) / kWarpThreads;
    float sums[2];  // of differences to it, and of their squares
    const auto sum_around_pivot = [&](int turn) {
      sums[0] = sums[1] = 0;
      row.for_vecs([&](int k, auto& v) {
        if (!row.has(k)) return;
#pragma unroll
        for (int i = 0; i < kVecSize; ++i) {
          const float difference = v[0][i] - pivot;
          sums[0] += difference;
          sums[1] = fmaf(difference, difference, sums[1]);
        }
      });
      row.reduce(sums, Add(), turn);
    };
    const float per_column = 1.0f / static_cast<float>(row.columns());
    sum_around_pivot(0);
    if constexpr (kHasSecondPass<Held<Load>>) {
      pivot = fmaf(sums[0], per_column, pivot);
      sum_around_pivot(1);
    }
    const PivotedMoments moments = pivoted_moments(sums, per_column, p.epsilon);
    if (threadIdx.x == 0 && p.mean != nullptr) {
      p.mean[blockIdx.x] = pivot + moments.rest;
      p.rstd[blockIdx.x] = moments.rstd;
    }
    const float shift = moments.shift();
    row.keep_packed();
    row.for_vecs([&](int k, auto& v) {
      if (!row.has(k)) return;
      if constexpr (kHasResidual) row.store_input(k, p.sum);  // every warp has read its sample
      float gamma[kVecSize];
      float beta[kVecSize];
      load_parameter(p.gamma, row.column_of(k), 1.0f, gamma);
      load_parameter(p.beta, row.column_of(k), 0.0f, beta);
      float y[kVecSize];
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) {
        y[i] = fmaf(fmaf(v[0][i] - pivot, moments.rstd, shift), gamma[i], beta[i]);
      }
      row.store(k, y);
    });
  }
};

/// There is at least one row; columns are a multiple of 8, at most kMostBlockRowNormColumns.
template <bool kHasResidual, class Load, class Store, class Parameter>
void launch_layernorm_fwd_block_per_row(const CudaContext& context,
                                        const NormForward<Load, Store, Parameter>& p, int64_t rows,
                                        int64_t columns) {
  // Blocks of an SM for which registers suffice; with a residual or f32 they need more.
  constexpr bool kIsLarge = kHasResidual || sizeof(Held<Load>) == 4;
  const BlockRowNorm<Load, Store, Parameter, kHasResidual> norm{{p.x}, p.y, p};
  if (columns <= 6 * kVecSize * kWarpThreads) {  // of a warp
    launch_block_per_row<6, 32, kIsLarge ? 16 : 32>(context, norm, rows, columns);
  } else if (columns <= 8'192) {
    launch_block_per_row<4, 256, kIsLarge ? 3 : 4>(context, norm, rows, columns);
  } else if constexpr (sizeof(typename Load::Element) == 2) {
    launch_block_per_row<4, 512, kIsLarge ? 2 : 3>(context, norm, rows, columns);
  }
}

}  // namespace bertha

#pragma once

#include "kernels/rows/cuda/norm_softmax/block_per_row.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_operands.cuh"

namespace bertha {

// LayerNorm forward, with or without a residual, on block_per_row.cuh: up to 16,384 columns in a
// block, in clusters to 131,072; of f32 up to 8,192.
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
int64_t most_block_row_norm_columns(bool has_clusters) {
  if (sizeof(T) == 4) return 8'192;
  return has_clusters ? kMostClusterColumns<4, 512> : 16'384;
}

template <class Load, class Store, class Parameter, RowForm kForm>
struct BlockRowNorm : OneInput<Load> {
  static constexpr bool kHasResidual = kForm == RowForm::kResidual;
  Store store;  // of y
  NormForward<Load, Store, Parameter> p;

  __device__ static uint32_t padding() { return 0; }

  __device__ __forceinline__ void run(auto& row) const {
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
        row.keep_columns(k, v[0], pivot);
        add_differences(v[0], pivot, sums[0], sums[1]);
      });
      row.reduce(sums, Add(), turn);
    };
    const float per_column = 1.0f / static_cast<float>(row.columns());
    sum_around_pivot(0);
    if constexpr (kHasSecondPass<Held<Load>>) {
      pivot = fmaf(sums[0], per_column, pivot);
      sum_around_pivot(1);
    }
    const PivotedMoments moments = pivoted_moments(pivot, sums, per_column, p.epsilon);
    if (row.is_first()) moments.store(p, row.row());
    row.keep_packed();
    row.for_vecs([&](int k, auto& v) {
      if (!row.has(k)) return;
      if constexpr (kHasResidual) row.store_input(k, p.sum);  // every warp has read its sample
      constexpr bool kInWords = kForm == RowForm::kInWords;
      const auto gamma = load_part<kInWords>(p.gamma, row.column_of(k), row.columns(), 1.0f);
      const auto beta = load_part<kInWords>(p.beta, row.column_of(k), row.columns(), 0.0f);
      float y[kVecSize];
      moments.normalize(v[0], gamma, beta, y);
      row.store(k, y);
    });
  }
};

/// There is at least one row; columns are a multiple of 8 or, in words, any, at most
/// most_block_row_norm_columns with the lead.
template <RowForm kForm, class Load, class Store, class Parameter>
void launch_layer_norm_fwd_block_per_row(const CudaContext& context,
                                         const NormForward<Load, Store, Parameter>& p, int64_t rows,
                                         int64_t columns) {
  // Blocks of an SM for which registers suffice; with a residual or f32 they need more.
  constexpr bool kIsLarge = kForm == RowForm::kResidual || sizeof(Held<Load>) == 4;
  constexpr bool kInWords = kForm == RowForm::kInWords;
  const BlockRowNorm<Load, Store, Parameter, kForm> norm{{p.x}, p.y, p};
  const int64_t reach = columns + (kInWords ? kMostLead : 0);
  if (reach <= 6 * kVecSize * kWarpThreads) {  // of a warp
    launch_block_per_row<6, 32, kIsLarge ? 16 : 32, kInWords>(context, norm, rows, columns);
  } else if (reach <= 8'192) {
    launch_block_per_row<4, 256, kIsLarge ? 3 : 4, kInWords>(context, norm, rows, columns);
  } else if constexpr (sizeof(typename Load::Element) == 2) {
    if (reach <= 16'384) {
      launch_block_per_row<4, 512, kIsLarge ? 2 : 3, kInWords>(context, norm, rows, columns);
    } else {
      launch_block_per_row<4, 512, kIsLarge ? 2 : 3, kInWords, true>(context, norm, rows, columns);
    }
  }
}

}  // namespace bertha

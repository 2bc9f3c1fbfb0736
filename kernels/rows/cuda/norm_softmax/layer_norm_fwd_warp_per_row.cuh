#pragma once

#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/vec.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_operands.cuh"
#include "kernels/rows/cuda/norm_softmax/row_words.cuh"

namespace bertha {

// LayerNorm forward, with or without a residual, of rows of a multiple of 8 columns up to 1,024, at
// 16-byte aligned addresses; without one also of 16-bit matrices of up to 1,273 columns that begin
// anywhere (row_words.cuh).
//
// A power of two of lanes shares a row and holds it in registers: one pass over memory, two shuffle
// reductions at once, no shared memory. The grid is one-shot, so that all that stands between the
// loads and the stores are shuffles, as in a copy. Loads do not allocate in L1 and stores are
// evicted first from L2; only both together help. In words the grid is persistent, and the rows of
// a team lie a multiple of 8 apart, so that gamma and beta are moved to the columns of their words
// once; the next row is loaded while one is worked on.
//
// Bound by memory: 49,152 x 1,024 f16 take 54 us on an H200, 93 % of a copy of as many bytes; in
// words x 1,001 take 66 us, 75 % (kernels/rows/measured/rows.md).

template <RowForm kForm>
inline constexpr int64_t kMostWarpRowColumns =
    (kForm == RowForm::kInWords ? 5 : 4) * kVecSize* kWarpThreads;

/// Threads of an SM for which registers suffice: gamma and beta take them in words.
template <RowForm kForm, int kVecs>
inline constexpr int kWarpRowThreads = kForm != RowForm::kInWords ? 1 : (kVecs <= 2 ? 768 : 512);

template <class Norm, RowForm kForm, int kLanes, int kVecs, int kRows, int kThreads>
__global__ void __launch_bounds__(kThreads, kWarpRowThreads<kForm, kVecs> / kThreads)
    layer_norm_fwd_warp_per_row_kernel(const __grid_constant__ Norm p, int64_t rows, int columns) {
  constexpr bool kHasResidual = kForm == RowForm::kResidual;
  constexpr bool kInWords = kForm == RowForm::kInWords;
  constexpr int kTeams = kThreads / kLanes;  // of lanes in a block, with a row at a time
  static_assert(!kInWords || kTeams % kVecSize == 0, "the rows of a team begin alike");
  using T = typename Norm::Element;
  using V = Vec<Held<decltype(Norm::x)>, kVecSize>;
  using Parameter = std::remove_cvref_t<decltype(*p.gamma)>;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  int64_t block_row = static_cast<int64_t>(blockIdx.x) * (kTeams * kRows);
  int64_t first_row = block_row + static_cast<int>(threadIdx.x) / kLanes;
  const auto row = [&](int r) { return first_row + r * kTeams; };
  int lead = 0;
  if constexpr (kInWords) lead = lead_of(p.x.matrix + first_row * columns);
  const auto column = [&](int k) { return (k * kLanes + lane) * kVecSize - lead; };
  const auto has = [&](int k) { return column(k) < columns; };
  const auto at = [&](int r, int k) { return row(r) * columns + column(k); };
  const auto place = [&](int r, int k) { return RowPlace{row(r), column(k), at(r, k)}; };

  Vec<Parameter, kVecSize> gamma[kVecs];
  Vec<Parameter, kVecSize> beta[kVecs];
  const auto load_parameters = [&] {
#pragma unroll
    for (int k = 0; k < kVecs; ++k) {
      gamma[k] = load_part<kInWords, Parameter>(nullptr, 0, 0, 1.0f);
      beta[k] = {};
      if (has(k) && p.gamma != nullptr) {
        gamma[k] = load_part<kInWords>(p.gamma, column(k), columns, 1.0f);
      }
      if (has(k) && p.beta != nullptr) {
        beta[k] = load_part<kInWords>(p.beta, column(k), columns, 0.0f);
      }
    }
  };
  const int64_t step = static_cast<int64_t>(gridDim.x) * (kTeams * kRows);
  V ahead[kRows][kVecs];  // in words: of the next turn
  const auto load_ahead = [&](int64_t beyond) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int k = 0; k < kVecs; ++k) {
        ahead[r][k] = {};
        if (!has(k) || row(r) + beyond >= rows) continue;
        if constexpr (kInWords) {
          ahead[r][k] = load_word(p.x.matrix, at(r, k) + beyond * columns, rows * columns);
        }
      }
    }
  };
  if constexpr (kInWords) {
    load_ahead(0);
    load_parameters();
  }
  do {
    V x[kRows][kVecs] = {};
    Vec<T, kVecSize> residual[kRows][kHasResidual ? kVecs : 1] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int k = 0; k < kVecs; ++k) {
        if constexpr (kInWords) {
          x[r][k] = ahead[r][k];
          continue;
        }
        if (!has(k) || row(r) >= rows) continue;
        x[r][k] = hold_no_allocate<kVecSize>(p.x, place(r, k));
        if constexpr (kHasResidual) residual[r][k] = load_vec_no_allocate(p.residual + at(r, k));
      }
    }
    if constexpr (kInWords) {
      load_ahead(step);
    } else {
      load_parameters();
    }
    if constexpr (kHasResidual) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int k = 0; k < kVecs; ++k) {
          x[r][k] = sum_of(x[r][k], residual[r][k]);
          if (has(k) && row(r) < rows) store_vec_streaming(p.sum + at(r, k), x[r][k]);
        }
      }
    }

    const float per_column = 1.0f / static_cast<float>(columns);
    float pivot[kRows];
    float sums[2 * kRows];  // of differences to it, and of their squares
    const auto sum_around_pivots = [&] {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sums[2 * r] = sums[2 * r + 1] = 0;
#pragma unroll
        for (int k = 0; k < kVecs; ++k) {
          if (has(k)) add_differences(x[r][k], pivot[r], sums[2 * r], sums[2 * r + 1]);
        }
      }
      reduce_lanes(sums, kLanes, Add());
    };
    // Around an element of the row, see PivotedMoments: the last of the first vector.
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      pivot[r] = __shfl_sync(kFullWarp, element(x[r][0], kVecSize - 1), 0, kLanes);
      if constexpr (kInWords) {
        const Vec<T, 2> pair = to_vec<T>({pivot[r], pivot[r]});  // exact
#pragma unroll
        for (int k = 0; k < kVecs; ++k) keep_columns(x[r][k], column(k), columns, pair.word[0]);
      }
    }
    sum_around_pivots();
    if constexpr (kHasSecondPass<Held<decltype(Norm::x)>>) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) pivot[r] = fmaf(sums[2 * r], per_column, pivot[r]);
      sum_around_pivots();
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row(r) >= rows) break;
      const PivotedMoments moments =
          pivoted_moments(pivot[r], {sums[2 * r], sums[2 * r + 1]}, per_column, p.epsilon);
      if (lane == 0) moments.store(p, row(r));
#pragma unroll
      for (int k = 0; k < kVecs; ++k) {
        if (!has(k)) continue;
        if constexpr (kInWords) {  // as numbers they would take registers through all turns
          keep_packed(x[r][k]);
          keep_packed(gamma[k]);
          keep_packed(beta[k]);
        }
        float y[kVecSize];
        moments.normalize(x[r][k], gamma[k], beta[k], y);
        const auto write = [](auto* to, const auto& vec) { store_vec_streaming(to, vec); };
        put_columns<kInWords>(p.y, place(r, k), columns, y, write);
      }
    }
    block_row += step;
    first_row += step;
  } while (kInWords && block_row < rows);
}

template <RowForm kForm, int kLanes, int kVecs, int kRows, int kThreads, class Norm>
void launch_layer_norm_lanes(const CudaContext& context, const Norm& p, int64_t rows,
                             int64_t columns) {
  auto* const kernel =
      &layer_norm_fwd_warp_per_row_kernel<Norm, kForm, kLanes, kVecs, kRows, kThreads>;
  const int64_t most =
      kForm == RowForm::kInWords ? resident_blocks(kernel, kThreads) * context.sm_count : INT32_MAX;
  launch_kernel(context.stream, kernel,
                {blocks_for(rows, kThreads / kLanes * kRows, most), kThreads}, p, rows,
                static_cast<int>(columns));
}

/// There is at least one row, of at most kMostWarpRowColumns<kForm> columns with the lead; they are
/// a multiple of 8, or 8 and more in words.
template <RowForm kForm, class Norm>
void launch_layer_norm_fwd_warp_per_row(const CudaContext& context, const Norm& p, int64_t rows,
                                        int64_t columns) {
  constexpr bool kInWords = kForm == RowForm::kInWords;
  const int64_t vecs = (columns + (kInWords ? 2 * kMostLead : 0)) / kVecSize;
  if constexpr (kInWords) {
    if (vecs > 128) return launch_layer_norm_lanes<kForm, 32, 5, 1, 256>(context, p, rows, columns);
  }
  if (vecs <= 4) {
    launch_layer_norm_lanes<kForm, 4, 1, 1, 256>(context, p, rows, columns);
  } else if (vecs <= 8) {
    launch_layer_norm_lanes<kForm, 8, 1, 2, 128>(context, p, rows, columns);
  } else if (!kInWords && vecs <= 12) {
    launch_layer_norm_lanes<kForm, 4, 3, 1, 128>(context, p, rows, columns);
  } else if (vecs <= 16) {
    launch_layer_norm_lanes<kForm, 8, 2, 1, 128>(context, p, rows, columns);
  } else if (vecs <= 24) {
    launch_layer_norm_lanes<kForm, 8, 3, 1, 128>(context, p, rows, columns);
  } else if (vecs <= 32) {
    launch_layer_norm_lanes<kForm, 16, 2, 1, 128>(context, p, rows, columns);
  } else if (vecs <= 48) {
    launch_layer_norm_lanes<kForm, 16, 3, 1, 128>(context, p, rows, columns);
  } else if (vecs <= 64) {
    launch_layer_norm_lanes<kForm, 32, 2, 1, kInWords ? 256 : 128>(context, p, rows, columns);
  } else if (vecs <= 96) {
    launch_layer_norm_lanes<kForm, 32, 3, 1, kInWords ? 256 : 128>(context, p, rows, columns);
  } else {
    launch_layer_norm_lanes<kForm, 32, 4, 1, kInWords ? 256 : 64>(context, p, rows, columns);
  }
}

}  // namespace bertha

#pragma once

#include "kernels/cuda/norm_softmax/held_rows.cuh"
#include "kernels/cuda/norm_softmax/pivoted_moments.cuh"
#include "kernels/cuda/norm_softmax/plain_norm.cuh"

namespace bertha {

// LayerNorm on held_rows.cuh.

/// Elements of a thread that stay unpacked between the passes.
inline constexpr int kMostUnpacked = 20;

/// gamma or beta of a thread's columns; without data, the same value for each.
template <class T, int N, int kPacks>
struct ColumnParameters {
  // Single elements take a register each, packed or not.
  static constexpr bool kPacked = N > 1;
  std::conditional_t<kPacked, RawPack<T, N>, float> packs[kPacks];

  template <class Rows>
  __device__ ColumnParameters(const T* from, float otherwise, const Rows& rows) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      float values[N];
#pragma unroll
      for (int i = 0; i < N; ++i) values[i] = otherwise;
      RawPack<T, N> raw;
      raw.pack(values);
      if (from != nullptr && rows.has(p)) {
        raw.load_anywhere(from + rows.column_of(p));
      }
      if constexpr (kPacked) {
        packs[p] = raw;
      } else {
        raw.unpack(values);
        packs[p] = values[0];
      }
    }
  }
  __device__ __forceinline__ void get(int p, float (&values)[N]) {
    if constexpr (kPacked) {
      packs[p].keep();
      packs[p].unpack(values);
    } else {
      values[0] = packs[p];
    }
  }
};

/// A row's mean, how far a warp's pivot lies above it, and its variance.
struct HeldMoments {
  float mean;
  float apart;
  float variance;
};

/// What a thread keeps for the moments of rows.
struct OfMoments {
  float per_column;
  float per_own;  // 1 / columns of the warp
  int lanes;      // that look at other warps' numbers
  float count;    // of the warp that the lane looks at
  float per_count;

  template <class Rows>
  __device__ explicit OfMoments(const Rows& rows)
      : per_column(1.0f / static_cast<float>(rows.columns())),
        lanes(meeting_lanes(rows.meeting_warps())) {
    const float own = rows.columns_of_warp(rows.warp());
    per_own = own > 0 ? 1.0f / own : 0.0f;
    const int other = rows.lane() % lanes;
    count = other < rows.meeting_warps() ? rows.columns_of_warp(other) : 0.0f;
    per_count = count > 0 ? 1.0f / count : 0.0f;
  }

  /// From the thread's sums of differences to its warp's pivot and of their squares.
  ///
  /// A large mean so costs nothing, in one pass: the pivot is an element, and so at most sqrt(n - 1)
  /// deviations from the mean of a warp's n (Samuelson); the variance loses at most a factor n, and
  /// of usual rows a few units. Warps then meet by the rule of Chan, Golub and LeVeque (1979).
  template <class Rows>
  __device__ __forceinline__ HeldMoments moments(Rows& rows, float pivot, float (&sums)[2]) const {
    reduce_lanes(sums, kWarpThreads, Add());
    const float own[3] = {pivot, sums[0], sums[1]};
    rows.meet(own);
    float base = pivot;
    float rest = sums[0] * per_own;  // the mean, around base
    float squares = fmaf(-sums[0], rest, sums[1]);
    if (rows.has_others()) {
      float first[1];
      rows.left_by(0, first);
      base = first[0];
      const int other = rows.lane() % lanes;
      float part[3] = {base, 0.0f, 0.0f};
      if (other < rows.meeting_warps()) rows.left_by(other, part);
      const float inner = part[1] * per_count;
      const float apart = count > 0 ? part[0] - base + inner : 0.0f;
      float total[1] = {count * apart};
      reduce_lanes(total, lanes, Add());
      rest = total[0] * per_column;
      const float off = apart - rest;
      total[0] = fmaf(count * off, off, fmaf(-part[1], inner, part[2]));
      reduce_lanes(total, lanes, Add());
      squares = total[0];
    }
    const float variance = squares * per_column;
    return {base + rest, pivot - base - rest, variance};
  }
};

template <class T>
struct HeldNorm {
  using Element = T;
  static constexpr int kInputs = 1;
  const T* inputs[kInputs];  // x
  T* output;                 // y
  const T* gamma;            // null: 1
  const T* beta;             // null: 0
  float* mean;
  float* rstd;
  float epsilon;

  template <int N, int kPacks>
  struct OfColumns : OfMoments {
    ColumnParameters<T, N, kPacks> gamma;
    ColumnParameters<T, N, kPacks> beta;

    template <class Rows>
    __device__ OfColumns(const HeldNorm& norm, const Rows& rows)
        : OfMoments(rows), gamma(norm.gamma, 1.0f, rows), beta(norm.beta, 0.0f, rows) {}
  };
  struct OfRow {};
  __device__ OfRow of_row(int64_t, int64_t) const { return {}; }

  template <class Rows, class Columns>
  __device__ __forceinline__ void run(Rows& rows, Columns& of_columns, OfRow) const {
    constexpr int N = Rows::kPackElements;
    const float pivot = rows.pivot();
    float sums[2] = {};
    rows.for_packs([&](int, auto& v) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float difference = v[0][i] - pivot;
        sums[0] += difference;
        sums[1] = fmaf(difference, difference, sums[1]);
      }
    });
    const HeldMoments row = of_columns.moments(rows, pivot, sums);
    const float scale = reciprocal_deviation(row.variance, epsilon);
    if (rows.is_first()) {
      mean[rows.row()] = row.mean;
      rstd[rows.row()] = scale;
    }
    const float shift = row.apart * scale;
    if constexpr (N * Rows::kPacks > kMostUnpacked) rows.keep_packed();
    rows.for_packs([&](int p, auto& v) {
      float factor[N];
      float term[N];
      of_columns.gamma.get(p, factor);
      of_columns.beta.get(p, term);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normalized = fmaf(v[0][i] - pivot, scale, shift);
        term[i] = fmaf(normalized, factor[i], term[i]);
      }
      rows.store(p, term);
    });
  }

  template <class Rows, class Columns>
  __device__ void finish(const Rows&, const Columns&, float*) const {}
};

/// Rows of at most most_held_columns(pack), of which there is at least one.
template <class T>
void launch_held_norm(const CudaContext& context, const PlainNorm<T>& p, int64_t rows,
                      int64_t columns, int pack) {
  hold_rows(context, operation_of<HeldNorm<T>>(p), rows, columns, pack);
}

/// partial [blocks, kQuantities, columns]: own(quantity, p, i), the block's teams one after the
/// other, in shared memory where there are several.
template <int kQuantities, class Rows, class Own>
__device__ __forceinline__ void add_teams(const Rows& rows, float* sums, float* partial,
                                          const Own& own) {
  constexpr int N = Rows::kPackElements;
  const int columns = rows.columns();
  float* const to = partial + static_cast<int64_t>(blockIdx.x) * kQuantities * columns;
  for (int team = 0; team < rows.teams(); ++team) {
    if (rows.teams() > 1) __syncthreads();
    if (rows.team() != team) continue;
    const bool is_last = team == rows.teams() - 1;
#pragma unroll
    for (int q = 0; q < kQuantities; ++q) {
#pragma unroll
      for (int p = 0; p < Rows::kPacks; ++p) {
        if (!rows.has(p)) continue;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const int at = q * columns + rows.column_of(p) + i;
          const float before = team == 0 ? 0.0f : sums[at];
          (is_last ? to : sums)[at] = own(q, p, i) + before;
        }
      }
    }
  }
}

template <class T>
struct HeldNormGradient {
  using Element = T;
  static constexpr int kInputs = 2;
  const T* inputs[kInputs];  // dy, x
  T* output;                 // dx, may be dy
  const T* gamma;            // null: 1
  const float* mean;
  const float* rstd;
  float* partial;  // [groups of blocks, 2, columns]: dgamma, dbeta

  template <int N, int kPacks>
  struct OfColumns {
    ColumnParameters<T, N, kPacks> gamma;
    float per_column;
    int lanes;
    float dgamma[kPacks][N] = {};
    float dbeta[kPacks][N] = {};

    template <class Rows>
    __device__ OfColumns(const HeldNormGradient& norm, const Rows& rows)
        : gamma(norm.gamma, 1.0f, rows),
          per_column(1.0f / static_cast<float>(rows.columns())),
          lanes(meeting_lanes(rows.meeting_warps())) {}
  };
  struct OfRow {
    float mean;
    float rstd;
  };
  __device__ OfRow of_row(int64_t row, int64_t rows) const {
    if (row >= rows) return {};
    return {mean[row], rstd[row]};
  }

  template <class Rows, class Columns>
  __device__ __forceinline__ void run(Rows& rows, Columns& of_columns, OfRow row) const {
    constexpr int N = Rows::kPackElements;
    float sums[2] = {};  // of g = dy * gamma, and of g * normalized
    rows.for_packs([&](int p, auto& v) {
      float factor[N];
      of_columns.gamma.get(p, factor);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float normalized = (v[1][i] - row.mean) * row.rstd;
        const float g = v[0][i] * factor[i];
        sums[0] += g;
        sums[1] = fmaf(g, normalized, sums[1]);
        of_columns.dgamma[p][i] = fmaf(v[0][i], normalized, of_columns.dgamma[p][i]);
        of_columns.dbeta[p][i] += v[0][i];
      }
    });
    reduce_lanes(sums, kWarpThreads, Add());
    rows.meet(sums);
    if (rows.has_others()) {
      sums[0] = sums[1] = 0.0f;
      const int other = rows.lane() % of_columns.lanes;
      if (other < rows.meeting_warps()) rows.left_by(other, sums);
      reduce_lanes(sums, of_columns.lanes, Add());
    }
    if constexpr (N * Rows::kPacks > kMostUnpacked / 2) rows.keep_packed();
    // dx = rstd * (g - mean(g) - normalized * mean(g * normalized))
    const float constant = -row.rstd * sums[0] * of_columns.per_column;
    const float slope = -row.rstd * row.rstd * sums[1] * of_columns.per_column;
    rows.for_packs([&](int p, auto& v) {
      float factor[N];
      float gradient[N];
      of_columns.gamma.get(p, factor);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float g = v[0][i] * factor[i];
        gradient[i] = fmaf(v[1][i] - row.mean, slope, fmaf(g, row.rstd, constant));
      }
      rows.store(p, gradient);
    });
  }

  template <class Rows, class Columns>
  __device__ void finish(const Rows& rows, const Columns& of_columns, float* sums) const {
    add_teams<2>(rows, sums, partial, [&](int q, int p, int i) {
      return q == 0 ? of_columns.dgamma[p][i] : of_columns.dbeta[p][i];
    });
  }
};

}  // namespace bertha

#pragma once

#include "kernels/rows/cuda/norm_softmax/generic_rows.cuh"
#include "kernels/rows/cuda/norm_softmax/layer_norm_operands.cuh"

namespace bertha {

// LayerNorm on generic_rows.cuh: forward of what neither the warp-per-row nor the block-per-row
// kernel takes (any width, f64 and misaligned f32); backward of rows wider than a
// block of layer_norm_bwd_registers.cuh holds, in two passes over memory: column sums, then dx.
//
// Forward reads memory once, up to 112,640 columns of 16 bits; 49,152 x 30,522 f16 take 3.3 ms on
// an H200, PyTorch's eager kernel 6.0 (kernels/rows/measured/rows.md).

inline constexpr int kColumnThreads = 256;

template <class Load, class Store, class Parameter>
struct GenericNormForward : OneInput<Load> {
  using T = typename Load::Element;
  NormForward<Load, Store, Parameter> p;

  template <int N>
  __device__ void values(const RowPlace& place, const Vec<T, N> (&raw)[1],
                         Compute<T> (&v)[1][N]) const {
    numbers_of(p.x, place, raw[0], v[0]);
    if (p.residual == nullptr) return;
    Compute<T> added[N];
    load_compute(p.residual + place.dense, added);
    // Rounded as backward will see it.
    for (int i = 0; i < N; ++i) v[0][i] = to_compute(from_compute<T>(v[0][i] + added[i]));
  }

  template <class Row>
  __device__ void run(Row& row) const {
    using Number = Compute<T>;
    constexpr int N = Row::kVecElements;
    const Number per_column = Number(1) / static_cast<Number>(row.columns());
    Number first_sum[1] = {};
    row.for_vecs([&](int64_t, auto& v) {
      for (int i = 0; i < N; ++i) first_sum[0] += v[0][i];
    });
    row.reduce(first_sum, Add());
    const Number first_mean = first_sum[0] * per_column;
    // What the mean lost in rounding is a sum of small differences, and comes with the squares.
    Number parts[2] = {};
    row.for_vecs([&](int64_t, auto& v) {
      for (int i = 0; i < N; ++i) {
        const Number difference = v[0][i] - first_mean;
        parts[0] += difference;
        parts[1] += difference * difference;
      }
    });
    row.reduce(parts, Add());
    const Number lost = parts[0] * per_column;
    const Number scale = reciprocal_deviation(parts[1] * per_column - lost * lost, p.epsilon);
    if (row.is_first() && p.mean != nullptr) {
      p.mean[row.row()] = first_mean + lost;
      p.rstd[row.row()] = scale;
    }
    row.for_vecs([&](int64_t column, auto& v) {
      const RowPlace place = row.place_of(column);
      if (p.residual != nullptr) store_compute(p.sum + place.dense, v[0]);
      Number gamma[N];
      Number y[N];
      load_parameter(p.gamma, column, Number(1), gamma);
      load_parameter(p.beta, column, Number(0), y);
      for (int i = 0; i < N; ++i) y[i] += ((v[0][i] - first_mean) - lost) * scale * gamma[i];
      put(p.y, place, y);
    });
  }
};

template <class LoadDy, class LoadX, class Store, class Parameter>
struct GenericNormBackward : TwoInputs<LoadDy, LoadX> {
  NormGradient<LoadDy, LoadX, Store, Parameter> p;

  template <class Row>
  __device__ void run(Row& row) const {
    using Number = typename decltype(p)::Number;
    constexpr int N = Row::kVecElements;
    const Number per_column = Number(1) / static_cast<Number>(row.columns());
    const Number mean = p.mean[row.row()];
    const Number rstd = p.rstd[row.row()];
    Number sums[2] = {};  // of g = dy * gamma, and of g * normalized
    row.for_vecs([&](int64_t column, auto& v) {
      Number gamma[N];
      load_parameter(p.gamma, column, Number(1), gamma);
      for (int i = 0; i < N; ++i) {
        const Number g = v[0][i] * gamma[i];
        sums[0] += g;
        sums[1] += g * ((v[1][i] - mean) * rstd);
      }
    });
    row.reduce(sums, Add());
    row.for_vecs([&](int64_t column, auto& v) {
      Number gamma[N];
      Number dx[N];
      load_parameter(p.gamma, column, Number(1), gamma);
      for (int i = 0; i < N; ++i) {
        const Number normalized = (v[1][i] - mean) * rstd;
        const Number g = v[0][i] * gamma[i];
        dx[i] = rstd * (g - sums[0] * per_column - normalized * (sums[1] * per_column));
      }
      put(p.dx, row.place_of(column), dx);
    });
  }
};

/// A block's share of the rows, N columns per thread; partial [blocks, 2, columns]: dgamma, dbeta.
/// Runs before dx is written, which may be dy.
template <class Norm, int N>
__global__ void __launch_bounds__(kColumnThreads)
    layer_norm_column_sums_kernel(Norm p, int64_t rows, int64_t columns) {
  using Number = typename Norm::Number;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x) * N;
  if (column >= columns) return;
  Number dgamma[N] = {};
  Number dbeta[N] = {};
#pragma unroll 4
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    Number dy[N];
    Number x[N];
    const RowPlace place{row, column, row * columns + column};
    numbers_of(p.dy, place, fetch<N>(p.dy, place), dy);
    numbers_of(p.x, place, fetch<N>(p.x, place), x);
    for (int i = 0; i < N; ++i) {
      dgamma[i] += dy[i] * ((x[i] - p.mean[row]) * p.rstd[row]);
      dbeta[i] += dy[i];
    }
  }
  Number* own = p.partial + 2 * blockIdx.y * columns + column;
  for (int i = 0; i < N; ++i) {
    own[i] = dgamma[i];
    own[columns + i] = dbeta[i];
  }
}

/// There is at least one row; with_vec_size chooses N.
template <int N, class LoadDy, class LoadX, class Store, class Parameter, class TakePartial>
void launch_layer_norm_bwd_generic(const CudaContext& context,
                                   NormGradient<LoadDy, LoadX, Store, Parameter> p, int64_t rows,
                                   int64_t columns, const TakePartial& take_partial) {
  const unsigned teams = blocks_for(rows, 16, context.sm_count);
  p.partial = take_partial(teams);
  launch_kernel(context.stream, layer_norm_column_sums_kernel<decltype(p), N>,
                {{blocks_for(columns, kColumnThreads * N), teams}, kColumnThreads}, p, rows,
                columns);
  const GenericNormBackward<LoadDy, LoadX, Store, Parameter> norm{{p.dy, p.x}, p};
  launch_shared_rows<N>(context, norm, rows, columns);
}

}  // namespace bertha

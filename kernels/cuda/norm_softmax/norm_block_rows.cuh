#pragma once

#include "kernels/cuda/norm_softmax/generic_rows.cuh"
#include "kernels/cuda/norm_softmax/norm_forward_rows.cuh"
#include "kernels/cuda/norm_softmax/norm_gradient_rows.cuh"

namespace bertha {

// LayerNorm on generic_rows.cuh: forward of 16-bit rows with a residual that lie at 16-byte words, and of
// rows wider than a block; backward of rows wider than a cluster, whose columns a second kernel sums up.

inline constexpr int kColumnThreads = 256;

/// A pack of gamma or beta; without data, the same value for every column.
template <int N, class T>
__device__ __forceinline__ void load_parameter(const T* from, int64_t column, Compute<T> otherwise,
                                               Compute<T> (&to)[N]) {
  if (from != nullptr) return load_compute(from + column, to);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = otherwise;
}

template <class T>
struct NormForward {
  using Element = T;
  static constexpr int kInputs = 1;
  static constexpr bool kShifts = false;
  const T* inputs[kInputs];  // x
  const T* residual;         // null: none
  const T* gamma;            // null: 1
  const T* beta;             // null: 0
  T* sum;                    // with a residual
  T* y;
  Compute<T>* mean;
  Compute<T>* rstd;
  Compute<T> epsilon;
  int64_t columns;

  template <int N>
  __device__ void values(const Vec<T, N> (&raw)[1], int64_t row, int64_t column,
                         Compute<T> (&v)[1][N]) const {
    to_compute(raw[0], v[0]);
    if (residual == nullptr) return;
    Compute<T> added[N];
    load_compute(residual + row * columns + column, added);
    // Rounded as backward will see it.
#pragma unroll
    for (int i = 0; i < N; ++i) v[0][i] = to_compute(from_compute<T>(v[0][i] + added[i]));
  }

  template <class Rows>
  __device__ void run(Rows& rows) const {
    using Number = Compute<T>;
    constexpr int kRows = Rows::kRows;
    constexpr int N = Rows::kPackElements;
    const auto count = static_cast<Number>(columns);
    Number first_mean[kRows] = {};
    rows.for_packs([&](int r, int64_t, auto& v, WholePack) {
#pragma unroll
      for (int i = 0; i < N; ++i) first_mean[r] += v[0][i];
    });
    rows.reduce(first_mean, Add());
    // What the mean lost in rounding is a sum of small differences, and comes with the squares.
    Number parts[2 * kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) first_mean[r] /= count;
    rows.for_packs([&](int r, int64_t, auto& v, WholePack) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number difference = v[0][i] - first_mean[r];
        parts[2 * r] += difference;
        parts[2 * r + 1] += difference * difference;
      }
    });
    rows.reduce(parts, Add());
    Number lost[kRows];
    Number scale[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      lost[r] = parts[2 * r] / count;
      scale[r] = reciprocal_deviation(parts[2 * r + 1] / count - lost[r] * lost[r], epsilon);
      if (rows.is_first() && rows.has_row(r)) {
        mean[rows.row(r)] = first_mean[r] + lost[r];
        rstd[rows.row(r)] = scale[r];
      }
    }
    rows.for_packs([&](int r, int64_t column, auto& v, WholePack) {
      const int64_t at = rows.row(r) * columns + column;
      if (residual != nullptr) store_compute(sum + at, v[0]);
      Number factor[N];
      Number term[N];
      load_parameter(gamma, column, Number(1), factor);
      load_parameter(beta, column, Number(0), term);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number normalized = ((v[0][i] - first_mean[r]) - lost[r]) * scale[r];
        term[i] += normalized * factor[i];
      }
      store_compute(y + at, term);
    });
  }
};

/// There is at least one row; address_bits as in generic_rows.cuh.
template <class T>
void launch_norm_block_forward(const CudaContext& context, const NormRows<T>& p, int64_t rows,
                               int64_t columns, uintptr_t address_bits) {
  const NormForward<T> norm{.inputs = {p.x},
                            .residual = p.residual,
                            .gamma = p.gamma,
                            .beta = p.beta,
                            .sum = p.sum,
                            .y = p.y,
                            .mean = p.mean,
                            .rstd = p.rstd,
                            .epsilon = p.epsilon,
                            .columns = columns};
  launch_rows(context, norm, rows, columns, address_bits);
}

template <class T>
struct NormBackward {
  using Element = T;
  static constexpr int kInputs = 2;
  const T* inputs[kInputs];  // dy, x
  const T* gamma;            // null: 1
  const Compute<T>* mean;
  const Compute<T>* rstd;
  T* dx;

  template <int N>
  __device__ void values(const Vec<T, N> (&raw)[2], int64_t, int64_t, Compute<T> (&v)[2][N]) const {
    to_compute(raw[0], v[0]);
    to_compute(raw[1], v[1]);
  }

  template <class Rows>
  __device__ void run(Rows& rows) const {
    using Number = Compute<T>;
    constexpr int kRows = Rows::kRows;
    constexpr int N = Rows::kPackElements;
    Number shift[kRows];
    Number scale[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      shift[r] = rows.has_row(r) ? mean[rows.row(r)] : Number(0);
      scale[r] = rows.has_row(r) ? rstd[rows.row(r)] : Number(0);
    }
    Number parts[2 * kRows] = {};  // the sums of g = dy * gamma, and of g * normalized
    rows.for_packs([&](int r, int64_t column, auto& v, WholePack) {
      Number factor[N];
      load_parameter(gamma, column, Number(1), factor);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number g = v[0][i] * factor[i];
        parts[2 * r] += g;
        parts[2 * r + 1] += g * ((v[1][i] - shift[r]) * scale[r]);
      }
    });
    rows.reduce(parts, Add());
#pragma unroll
    for (int k = 0; k < 2 * kRows; ++k) parts[k] /= static_cast<Number>(rows.columns());
    rows.for_packs([&](int r, int64_t column, auto& v, WholePack) {
      Number factor[N];
      Number gradient[N];
      load_parameter(gamma, column, Number(1), factor);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const Number normalized = (v[1][i] - shift[r]) * scale[r];
        const Number g = v[0][i] * factor[i];
        gradient[i] = scale[r] * (g - parts[2 * r] - normalized * parts[2 * r + 1]);
      }
      store_compute(dx + rows.row(r) * rows.columns() + column, gradient);
    });
  }
};

/// A block's share of the rows, a column per thread; partial [blocks, 2, columns]: dgamma, dbeta.
/// Runs before dx is written, which may be dy.
template <class T>
__global__ void __launch_bounds__(kColumnThreads)
    column_parts_kernel(NormBackward<T> norm, Compute<T>* partial, int64_t rows, int64_t columns) {
  using Number = Compute<T>;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x;
  if (column >= columns) return;
  Number dgamma = 0;
  Number dbeta = 0;
#pragma unroll 4
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const Number dy = to_compute(norm.inputs[0][row * columns + column]);
    const Number x = to_compute(norm.inputs[1][row * columns + column]);
    dgamma += dy * ((x - norm.mean[row]) * norm.rstd[row]);
    dbeta += dy;
  }
  Number* own = partial + 2 * blockIdx.y * columns + column;
  own[0] = dgamma;
  own[columns] = dbeta;
}

/// Columns wider than a cluster: dx apart from the column sums, of which `teams` leave parts.
template <class T, int N, class TakePartial>
void run_two_passes(const CudaContext& context, const NormGradient<T>& p, int64_t rows,
                    int64_t columns, const TakePartial& take_partial) {
  const NormBackward<T> norm{
      .inputs = {p.dy, p.x}, .gamma = p.gamma, .mean = p.mean, .rstd = p.rstd, .dx = p.dx};
  const unsigned teams = blocks_for(rows, 16, context.sm_count);
  const dim3 grid(static_cast<unsigned>((columns + kColumnThreads - 1) / kColumnThreads), teams);
  column_parts_kernel<T>
      <<<grid, kColumnThreads, 0, context.stream>>>(norm, take_partial(teams), rows, columns);
  BERTHA_CUDA_CHECK(cudaGetLastError());
  launch_block_rows<N>(context, norm, rows, columns);
}

}  // namespace bertha

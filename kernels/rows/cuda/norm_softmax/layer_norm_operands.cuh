#pragma once

#include "kernels/base/cuda/row_norm.cuh"
#include "kernels/rows/cuda/norm_softmax/row_functors.cuh"

namespace bertha {

/// Operands of LayerNorm forward. Statistics are f64 for f64, f32 otherwise.
template <class Load, class Store, class Parameter>
struct NormForward {
  using Element = ElementOf<Load>;
  using Number = Compute<Element>;
  Load x;                   // [rows, columns]
  const Element* residual;  // [rows, columns] of a plain Load; null: none
  const Parameter* gamma;   // [columns]; null: 1
  const Parameter* beta;    // [columns]; null: 0
  Element* sum;  // [rows, columns] with a residual: x + residual; may be x or the residual
  Store y;       // [rows, columns]
  Number* mean;  // [rows]; null, as rstd: not wanted
  Number* rstd;  // [rows]
  Number epsilon;
};

template <class T, class Parameter = T>
using PlainNormForward = NormForward<MatrixLoad<T>, MatrixStore<T>, Parameter>;

/// Operands of LayerNorm backward. Launches get `partial` from take_partial(blocks or clusters).
template <class LoadDy, class LoadX, class Store, class Parameter>
struct NormGradient {
  using Element = ElementOf<LoadDy>;
  using Number = Compute<Element>;
  using HeldElement = typename TwoInputs<LoadDy, LoadX>::HeldElement;
  LoadDy dy;               // [rows, columns]
  LoadX x;                 // [rows, columns]
  const Parameter* gamma;  // [columns]; null: 1
  const Number* mean;      // [rows]
  const Number* rstd;      // [rows]
  Store dx;                // [rows, columns]; may be dy
  Number* partial;         // [taken, 2, columns]: sums for dgamma, dbeta
};

template <class T, class Parameter = T>
using NormBackward = NormGradient<MatrixLoad<T>, MatrixLoad<T>, MatrixStore<T>, Parameter>;

/// 1 / standard deviation; a variance below 0 is rounding, and NaN stays NaN.
template <class Number>
__device__ __forceinline__ Number reciprocal_deviation(Number variance, Number epsilon) {
  return rsqrt((variance < Number(0) ? Number(0) : variance) + epsilon);
}

/// Adds a vector's differences to the pivot, and their squares; x is a Vec or numbers.
__device__ __forceinline__ void add_differences(const auto& x, float pivot, float& sum,
                                                float& squares) {
  for (int i = 0; i < kVecSize; ++i) {
    const float difference = element(x, i) - pivot;
    sum += difference;
    squares = fmaf(difference, difference, squares);
  }
}

/// Statistics of a row from sums of differences to a pivot near its mean, so that a large mean
/// costs no precision.
struct PivotedMoments {
  float pivot;
  float rest;  // of the mean, which is pivot + rest
  float rstd;

  __device__ __forceinline__ void store(const auto& p, int64_t row) const {
    if (p.mean == nullptr) return;
    p.mean[row] = pivot + rest;
    p.rstd[row] = rstd;
  }
  /// The results of a vector.
  template <class X, class Gamma>
  __device__ __forceinline__ void normalize(const X& x, const Gamma& gamma, const Gamma& beta,
                                            float (&y)[kVecSize]) const {
    const float shift = -rest * rstd;
    for (int i = 0; i < kVecSize; ++i) {
      const float normalized = fmaf(element(x, i) - pivot, rstd, shift);
      y[i] = fmaf(normalized, element(gamma, i), element(beta, i));
    }
  }
};

/// sums: over the row, of differences to the pivot and of their squares.
__device__ __forceinline__ PivotedMoments pivoted_moments(float pivot, const float (&sums)[2],
                                                          float per_column, float epsilon) {
  const float rest = sums[0] * per_column;
  const float variance = fmaf(-sums[0], rest, sums[1]) * per_column;
  return {pivot, rest, reciprocal_deviation(variance, epsilon)};
}

/// The statistics of a row; beyond the last one, zeros.
__device__ __forceinline__ RowStatistics statistics_of(const auto& p, int64_t row, int64_t rows) {
  return row < rows ? RowStatistics{p.mean[row], p.rstd[row]} : RowStatistics{};
}

/// Whether rows of these elements are summed a second time, from registers, around the mean that
/// the first time gave: an outlier that the pivot is taken from costs the mean and the variance
/// digits that results of 16 bits do not have.
template <class T>
inline constexpr bool kHasSecondPass = sizeof(T) == 4;

/// N values of gamma or beta; without data, the same for every column.
template <int N, class T>
__device__ __forceinline__ void load_parameter(const T* from, int64_t column, Compute<T> otherwise,
                                               Compute<T> (&to)[N]) {
  if (from != nullptr) return load_compute(from + column, to);
  for (int i = 0; i < N; ++i) to[i] = otherwise;
}

}  // namespace bertha

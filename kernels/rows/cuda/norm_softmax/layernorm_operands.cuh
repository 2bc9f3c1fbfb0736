#pragma once

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

/// Operands of LayerNorm backward.
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
  Number* partial;         // [blocks or clusters, 2, columns]: sums for dgamma, dbeta
};

template <class T, class Parameter = T>
using NormBackward = NormGradient<MatrixLoad<T>, MatrixLoad<T>, MatrixStore<T>, Parameter>;

/// 1 / standard deviation; a variance below 0 is rounding, and NaN stays NaN.
template <class Number>
__device__ __forceinline__ Number reciprocal_deviation(Number variance, Number epsilon) {
  return rsqrt((variance < Number(0) ? Number(0) : variance) + epsilon);
}

/// Statistics of a row from sums of differences to a pivot near its mean, so that a large mean
/// costs no precision.
struct PivotedMoments {
  float rest;  // of the mean, which is pivot + rest
  float rstd;

  /// The normalized x is (x - pivot) * rstd + shift.
  __device__ __forceinline__ float shift() const { return -rest * rstd; }
};

/// sums: over the row, of differences to the pivot and of their squares.
__device__ __forceinline__ PivotedMoments pivoted_moments(const float (&sums)[2], float per_column,
                                                          float epsilon) {
  const float rest = sums[0] * per_column;
  const float variance = fmaf(-sums[0], rest, sums[1]) * per_column;
  return {rest, reciprocal_deviation(variance, epsilon)};
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

#pragma once

#include "kernels/cuda/common/compute.cuh"

namespace bertha {

/// Operands of LayerNorm forward. Statistics are f64 for f64, f32 otherwise.
template <class T>
struct NormForward {
  const T* x;         // [rows, columns]
  const T* residual;  // [rows, columns]; null: none
  const T* gamma;     // [columns]; null: 1
  const T* beta;      // [columns]; null: 0
  T* sum;             // [rows, columns] with a residual: x + residual; may be x or the residual
  T* y;               // [rows, columns]
  Compute<T>* mean;   // [rows]
  Compute<T>* rstd;   // [rows]
  Compute<T> epsilon;
};

/// Operands of LayerNorm backward.
template <class T>
struct NormBackward {
  const T* dy;             // [rows, columns]
  const T* x;              // [rows, columns]
  const T* gamma;          // [columns]; null: 1
  const Compute<T>* mean;  // [rows]
  const Compute<T>* rstd;  // [rows]
  T* dx;                   // [rows, columns]; may be dy
  Compute<T>* partial;     // [teams of blocks, 2, columns]: sums for dgamma and dbeta
};

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

/// N values of gamma or beta; without data, the same for every column.
template <int N, class T>
__device__ __forceinline__ void load_parameter(const T* from, int64_t column, Compute<T> otherwise,
                                               Compute<T> (&to)[N]) {
  if (from != nullptr) return load_compute(from + column, to);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = otherwise;
}

}  // namespace bertha

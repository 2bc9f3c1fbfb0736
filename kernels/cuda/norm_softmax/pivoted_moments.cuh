#pragma once

#include "kernels/cuda/common/types.cuh"

namespace bertha {

/// 1 / standard deviation of LayerNorm; a variance below 0 is rounding, and NaN stays NaN.
template <class Number>
__device__ __forceinline__ Number reciprocal_deviation(Number variance, Number epsilon) {
  return rsqrt((variance < Number(0) ? Number(0) : variance) + epsilon);
}

/// What LayerNorm takes of a row, around a pivot near its mean: a large mean then costs nothing.
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

}  // namespace bertha

#pragma once

#include <type_traits>

#include "kernels/cuda/common/vec.cuh"

namespace bertha {

/// The type that elements of T are computed in: f64 for f64, f32 otherwise.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
__device__ __forceinline__ Compute<T> to_compute(T value) {
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return to_float(value);
  }
}

/// Rounded to nearest even.
template <class T>
__device__ __forceinline__ T from_compute(Compute<T> value) {
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return from_float<T>(value);
  }
}

template <class T, int N>
__device__ __forceinline__ void to_compute(const Vec<T, N>& pack, Compute<T> (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_compute(pack.elem[i]);
}

template <class T, int N>
__device__ __forceinline__ void load_compute(const T* from, Compute<T> (&to)[N]) {
  to_compute(*reinterpret_cast<const Vec<T, N>*>(from), to);
}

template <class T, int N>
__device__ __forceinline__ void store_compute(T* to, const Compute<T> (&from)[N]) {
  Vec<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.elem[i] = from_compute<T>(from[i]);
  *reinterpret_cast<Vec<T, N>*>(to) = pack;
}

}  // namespace bertha

#pragma once

#include <type_traits>

#include "kernels/base/cuda/vec.cuh"

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
__device__ __forceinline__ void to_compute(const Vec<T, N>& vec, Compute<T> (&to)[N]) {
  if constexpr (std::is_same_v<T, double>) {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = vec.elem[i];
  } else {
    to_floats(vec, to);
  }
}

template <class T, int N>
__device__ __forceinline__ void load_compute(const T* from, Compute<T> (&to)[N]) {
  to_compute(load_vec<N>(from), to);
}

template <class T, int N>
__device__ __forceinline__ void store_compute(T* to, const Compute<T> (&from)[N]) {
  if constexpr (std::is_same_v<T, double>) {
    Vec<T, N> vec;
#pragma unroll
    for (int i = 0; i < N; ++i) vec.elem[i] = from[i];
    store_vec(to, vec);
  } else {
    store_vec(to, to_vec<T>(from));
  }
}

}  // namespace bertha

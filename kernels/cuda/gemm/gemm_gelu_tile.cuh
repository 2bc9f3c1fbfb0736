#pragma once

// GELU and its derivative of pairs, for gemm_bias_gelu.cu and gemm_dgelu_dbias.cu: few warps
// compute it for all results of an SM's tensor cores.

#include "kernels/cuda/gemm/gelu.cuh"
#include "kernels/cuda/tensor_core/mma.cuh"

namespace bertha::gemm_bias_gelu {

using gelu_instruction::clamped;
using gelu_instruction::gelu;
using gelu_instruction::gelu_derivative;

/// The two elements of a register, the inverse of packed().
template <class T>
__device__ __forceinline__ float2 unpacked(uint32_t pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u));
  }
}

/// gelu' of two elements, as f16.
template <class T>
__device__ __forceinline__ uint32_t gelu_derivative_pair(uint32_t pair) {
  const float2 z = unpacked<T>(clamped<T>(pair));
  return packed<__half>(gelu_derivative(z.x), gelu_derivative(z.y));
}

}  // namespace bertha::gemm_bias_gelu

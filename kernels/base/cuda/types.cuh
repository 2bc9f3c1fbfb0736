#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/base/error.h"
#include "kernels/base/view.h"

namespace bertha {

inline constexpr float kLog2E = 1.4426950408889634f;

template <>
inline constexpr DType kDTypeOf<__half> = DType::kF16;
template <>
inline constexpr DType kDTypeOf<__nv_bfloat16> = DType::kBF16;

/// Typed pointer to the first element of a view on the device.
template <class T>
T* elements(const View& view) {
  return view.as<T>();
}

/// The elements of a view; null if it is without data.
template <class T>
T* optional_elements(const View& view) {
  return view.has_data() ? elements<T>(view) : nullptr;
}

template <class T>
struct TypeTag {
  using Type = T;
};

/// Calls work(TypeTag<T>{}) with the element type of a view: __half or __nv_bfloat16.
template <class Work>
void dispatch_16bit(DType dtype, const Work& work) {
  switch (dtype) {
    case DType::kF16:
      return work(TypeTag<__half>{});
    case DType::kBF16:
      return work(TypeTag<__nv_bfloat16>{});
    default:
      fail(ExitCode::kInternal, "dtype is ", name(dtype), ", which the operation does not support");
  }
}

/// Dispatches as dispatch_16bit, and also f32.
template <class Work>
void dispatch_io(DType dtype, const Work& work) {
  if (dtype == DType::kF32) return work(TypeTag<float>{});
  dispatch_16bit(dtype, work);
}

/// work(TypeTag<T>{}) as dispatch_io, with f64.
template <class Work>
void dispatch_floating(DType dtype, const Work& work) {
  if (dtype == DType::kF64) return work(TypeTag<double>{});
  dispatch_io(dtype, work);
}

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

/// Rounded to nearest even.
template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

}  // namespace bertha

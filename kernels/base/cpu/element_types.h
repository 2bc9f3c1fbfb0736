#pragma once

#include "kernels/base/half.h"
#include "kernels/base/view.h"

namespace bertha {

// The floating element types of operations that take all of them, through f64.

/// Exact.
template <class T>
double to_double(T value) {
  return static_cast<double>(value);
}
inline double to_double(Half value) { return static_cast<double>(to_float(value)); }
inline double to_double(BFloat16 value) { return static_cast<double>(to_float(value)); }

/// Rounded once, to nearest even.
template <class T>
T from_double(double value) {
  return static_cast<T>(value);
}
template <>
inline Half from_double<Half>(double value) {
  return to_half(value);
}
template <>
inline BFloat16 from_double<BFloat16>(double value) {
  return to_bfloat16(value);
}

/// Calls work(T{}) with the element type of a floating dtype.
template <class Work>
void with_floating_type(DType dtype, const Work& work) {
  switch (dtype) {
    case DType::kF64:
      return work(double{});
    case DType::kF32:
      return work(float{});
    case DType::kF16:
      return work(Half{});
    case DType::kBF16:
      return work(BFloat16{});
    default:
      BERTHA_CHECK(false, "dtype ", name(dtype), ", want f64, f32, f16 or bf16");
  }
}

}  // namespace bertha

#pragma once

#include <cstdint>

#include "kernels/base/error.h"

namespace bertha {

enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kE4M3, kE5M2, kI64, kI32, kU64, kU8 };

constexpr int64_t size_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kU8:
      return 1;
  }
  return 0;
}

constexpr const char* name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "f64";
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kE4M3:
      return "e4m3";
    case DType::kE5M2:
      return "e5m2";
    case DType::kI64:
      return "i64";
    case DType::kI32:
      return "i32";
    case DType::kU64:
      return "u64";
    case DType::kU8:
      return "u8";
  }
  return "?";
}

constexpr bool is_fp8(DType dtype) { return dtype == DType::kE4M3 || dtype == DType::kE5M2; }

template <class T>
struct NoDType;  // has no definition: a type without a DType does not compile

/// The DType of a C++ element type; for types of 16 and 8 bits see half.h and fp8.h.
template <class T>
inline constexpr DType kDTypeOf = NoDType<T>::kValue;
template <>
inline constexpr DType kDTypeOf<double> = DType::kF64;
template <>
inline constexpr DType kDTypeOf<float> = DType::kF32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kI64;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kI32;
template <>
inline constexpr DType kDTypeOf<uint64_t> = DType::kU64;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kU8;

}  // namespace bertha

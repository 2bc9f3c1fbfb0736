#pragma once

#include <cstdint>
#include <iterator>

#include "kernels/base/error.h"

namespace bertha {

enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kE4M3, kE5M2, kI64, kI32, kU64, kU8 };

struct DTypeFacts {
  const char* name;
  int64_t size_bytes;
};
/// In the order of DType.
inline constexpr DTypeFacts kDTypeFacts[] = {
    {"f64", 8},  {"f32", 4}, {"f16", 2}, {"bf16", 2}, {"e4m3", 1},
    {"e5m2", 1}, {"i64", 8}, {"i32", 4}, {"u64", 8},  {"u8", 1},
};
static_assert(std::size(kDTypeFacts) == static_cast<size_t>(DType::kU8) + 1);

constexpr int64_t size_bytes(DType dtype) {
  return kDTypeFacts[static_cast<size_t>(dtype)].size_bytes;
}
constexpr const char* name(DType dtype) { return kDTypeFacts[static_cast<size_t>(dtype)].name; }

constexpr bool is_fp8(DType dtype) { return dtype == DType::kE4M3 || dtype == DType::kE5M2; }

template <class T>
struct NoDType;  // not defined, so that a type without a DType does not compile

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

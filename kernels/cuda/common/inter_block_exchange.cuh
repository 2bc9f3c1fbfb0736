#pragma once

#include <cstdint>

namespace bertha {

// Values that the blocks of a kernel exchange through the words of an InterBlockExchange
// (cuda_context.h). A word packs a value with its flag, and is zero until it is stored: no fence,
// which would wait for all earlier stores of the thread, and no counter to poll first.

/// f32 with a one above it.
__device__ __forceinline__ uint64_t word_of(float number) {
  return uint64_t{1} << 32 | __float_as_uint(number);
}
/// f64 inverted: zero would be one NaN of many, for which another stands.
__device__ __forceinline__ uint64_t word_of(double number) {
  const uint64_t word = ~static_cast<uint64_t>(__double_as_longlong(number));
  return word == 0 ? 1 : word;
}
template <class Number>
__device__ __forceinline__ Number number_of(uint64_t word) {
  if constexpr (sizeof(Number) == sizeof(float)) {
    return __uint_as_float(static_cast<uint32_t>(word));
  } else {
    return __longlong_as_double(static_cast<long long>(~word));
  }
}

__device__ __forceinline__ void leave_word(uint64_t* to, uint64_t word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
/// Zero where nothing is there yet.
__device__ __forceinline__ uint64_t look_at(const uint64_t* from) {
  uint64_t found;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(from) : "memory");
  return found;
}
/// The word that was found, or where none was, the one that will be there.
__device__ __forceinline__ uint64_t awaited(const uint64_t* from, uint64_t found) {
  while (found == 0) found = look_at(from);
  return found;
}

}  // namespace bertha

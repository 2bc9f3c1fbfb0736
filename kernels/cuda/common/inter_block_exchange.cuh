#pragma once

#include <cstdint>

namespace bertha {

// Values that the blocks of a kernel exchange through the words of an InterBlockExchange
// (cuda_context.h). A word packs a value with its flag, and is zero until it is stored. So neither
// a fence, which would wait for all earlier stores of the thread, nor a counter to poll is needed.

/// f32 in the low half, the flag 1 in the high half.
__device__ __forceinline__ uint64_t flagged_word(float number) {
  return uint64_t{1} << 32 | __float_as_uint(number);
}
/// f64 inverted, so that 0.0 is not the zero word; the one NaN that would be becomes another NaN.
__device__ __forceinline__ uint64_t flagged_word(double number) {
  const uint64_t word = ~static_cast<uint64_t>(__double_as_longlong(number));
  return word == 0 ? 1 : word;
}
template <class Number>
__device__ __forceinline__ Number value_of(uint64_t word) {
  if constexpr (sizeof(Number) == sizeof(float)) {
    return __uint_as_float(static_cast<uint32_t>(word));
  } else {
    return __longlong_as_double(static_cast<long long>(~word));
  }
}

__device__ __forceinline__ void store_word(uint64_t* to, uint64_t word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
/// Zero where nothing has been stored yet.
__device__ __forceinline__ uint64_t load_word(const uint64_t* from) {
  uint64_t found;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(from) : "memory");
  return found;
}
/// `found`, or where that is zero, the word as soon as it has been stored.
__device__ __forceinline__ uint64_t wait_for_word(const uint64_t* from, uint64_t found) {
  while (found == 0) found = load_word(from);
  return found;
}

}  // namespace bertha

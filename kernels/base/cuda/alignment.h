#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace bertha {

/// Whether all of them are multiples of 16 bytes, as required for words of 16 bytes, bulk copies
/// and tensor maps. Null pointers are.
inline bool is_aligned(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 0;
  for (const void* pointer : pointers) bits |= reinterpret_cast<uintptr_t>(pointer);
  return bits % 16 == 0;
}

/// work(std::integral_constant<int, N>) with N elements of T in 16 bytes where `is_wide`, else one.
template <class T, class Work>
void dispatch_vec(bool is_wide, const Work& work) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(T));
  if (is_wide) return work(std::integral_constant<int, kWide>{});
  work(std::integral_constant<int, 1>{});
}

}  // namespace bertha

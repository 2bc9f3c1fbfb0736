#pragma once

#include <cstdint>
#include <initializer_list>

namespace bertha {

/// Whether all of them lie at multiples of 16 bytes, where words of 16 bytes, bulk copies and
/// tensor maps may begin. Null pointers do.
inline bool is_aligned(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 0;
  for (const void* pointer : pointers) bits |= reinterpret_cast<uintptr_t>(pointer);
  return bits % 16 == 0;
}

}  // namespace bertha

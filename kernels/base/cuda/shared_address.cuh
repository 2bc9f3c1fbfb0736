#pragma once

#include <cstdint>

namespace bertha {

/// The address of something in shared memory, as instructions of PTX take it.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
/// The shared-memory address of an object: at(shared.full[stage]).
template <class T>
__device__ __forceinline__ uint32_t at(const T& in_shared) {
  return shared_address(&in_shared);
}

}  // namespace bertha

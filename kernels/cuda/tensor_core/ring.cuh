#pragma once

#include <cstdint>

namespace bertha {

/// A place of a ring in shared memory, and the phase of its barriers: who fills it waits for "empty"
/// with the other parity, who reads it for "full" with this one.
template <int kPlaces>
struct RingPlace {
  int index = 0;
  uint32_t parity = 0;  // of "full" in this round; "empty" of the round before has the other

  __device__ __forceinline__ void advance() {
    if (++index < kPlaces) return;
    index = 0;
    parity ^= 1;
  }
};

}  // namespace bertha

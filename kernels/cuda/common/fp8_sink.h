#pragma once

#include <cstdint>

namespace bertha {

/// Where a kernel stores what it rounds to fp8, as plain pointers.
struct Fp8Sink {
  const float* scale = nullptr;
  uint8_t* q = nullptr;
  uint32_t* amax = nullptr;  // f32 bits, which order as the floats do
  unsigned long long* saturated = nullptr;
  const int32_t* live_rows = nullptr;  // null: all
};

/// Of an Fp8Result, or of a Quantize.
template <class Result>
Fp8Sink sink_of(const Result& result) {
  return {.scale = static_cast<const float*>(result.scale.data),
          .q = static_cast<uint8_t*>(result.q.data),
          .amax = static_cast<uint32_t*>(result.amax.data),
          .saturated = static_cast<unsigned long long*>(result.saturated.data),
          .live_rows = static_cast<const int32_t*>(result.live_rows.data)};
}

}  // namespace bertha

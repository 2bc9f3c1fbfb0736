#pragma once

#include <cstdint>

#include "kernels/base/view.h"

namespace bertha {

/// Whether a gradient output overwrites its memory or adds to it.
enum class Accumulate : uint8_t { kNo, kYes };

/// Which elements of a tensor are dropped. Probability 0 switches dropout off; `random` is still
/// given so that forgetting it does not compile.
///
/// Random    element i is kept as is_kept(seed, step, site, i, p) of kernels/base/dropout_bits.h
///           says; kept elements are multiplied by 1 / (1 - p).
/// Masks     operations save their decisions for backward as bits: bit i % 8 of byte i / 8 is 1
///           if element i is kept. At probability 0 a mask needs no data and is not accessed.
struct Dropout {
  View random;               // u64 [2]  {seed, step}, in device memory
  float probability = 0.0f;  // in [0, 1)
  uint32_t site = 0;         // of the random numbers; unique per (layer, place) in a model
};

}  // namespace bertha

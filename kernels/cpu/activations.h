#pragma once

#include <cstdint>

#include "kernels/ops/linear.h"

namespace bertha {

inline constexpr int64_t kActivationBlock = 16384;  // elements of one task

/// y = activation(z); kNone does nothing; y may be z.
void activate(Activation activation, const float* z, int64_t count, float* y);

/// dx = dy * activation'(saved); kNone does nothing; dx may be dy.
void differentiate(Activation activation, const float* dy, const float* saved, int64_t count,
                   float* dx);

/// Bytes of the derivative of a GELU at z, see Quantize.
void store_derivative(Activation activation, const float* z, int64_t count, uint8_t* bytes);

/// dx = dy * derivative, in bytes; dx may be dy.
void multiply_by_derivative(const float* dy, const uint8_t* bytes, int64_t count, float* dx);

}  // namespace bertha

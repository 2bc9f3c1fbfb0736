#include "kernels/cpu/activations.h"

#include <cmath>
#include <vector>

#include "kernels/cpu/vector_math.h"
#include "kernels/ops/quantize.h"

namespace bertha {

void activate(Activation activation, const float* z, int64_t count, float* y) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kGeluTanh:
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) y[i] = gelu(z[i]);
      return;
    case Activation::kTanh:  // the pooler only: a row per sequence
      for (int64_t i = 0; i < count; ++i) y[i] = std::tanh(z[i]);
      return;
    case Activation::kGelu:
      for (int64_t i = 0; i < count; ++i) y[i] = gelu_erf(z[i]);
      return;
  }
}

void differentiate(Activation activation, const float* dy, const float* saved, int64_t count,
                   float* dx) {
  switch (activation) {
    case Activation::kNone:
      return;
    case Activation::kGeluTanh:
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * gelu_derivative(saved[i]);
      return;
    case Activation::kTanh:
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * (1.0f - saved[i] * saved[i]);
      return;
    case Activation::kGelu:
      for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * gelu_erf_derivative(saved[i]);
      return;
  }
}

void store_derivative(Activation activation, const float* z, int64_t count, uint8_t* bytes) {
  std::vector<float> derivative(static_cast<size_t>(count), 1.0f);
  differentiate(activation, derivative.data(), z, count, derivative.data());
  for (int64_t i = 0; i < count; ++i) {
    const float steps = derivative[static_cast<size_t>(i)] / kDerivativeStep;
    const float code = std::nearbyint(steps) + static_cast<float>(kDerivativeZero);
    bytes[i] = code >= 0.0f && code <= 255.0f ? static_cast<uint8_t>(code) : uint8_t{255};
  }
}

void multiply_by_derivative(const float* dy, const uint8_t* bytes, int64_t count, float* dx) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    dx[i] = dy[i] * (static_cast<float>(bytes[i] - kDerivativeZero) * kDerivativeStep);
  }
}

}  // namespace bertha

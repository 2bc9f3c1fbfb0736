#include "kernels/cpu/activations.h"

#include <cmath>

#include "kernels/cpu/vector_math.h"

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

}  // namespace bertha

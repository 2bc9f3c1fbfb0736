#pragma once

#include <cmath>
#include <map>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/half.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/cuda/linear_case.h"

namespace bertha::testing {

using GeluGemms = CudaOptions::GeluGemms;

inline constexpr int kAllSms = 0;
/// So few that each gets several tiles in turn.
inline constexpr int kFewSms = 6;

/// The GPU with that choice of kernels, made once per program.
inline const TestBackend& gelu_gpu(GeluGemms choice, int sm_count) {
  static std::map<std::pair<GeluGemms, int>, TestBackend> made;
  const auto [found, is_new] = made.try_emplace({choice, sm_count});
  if (is_new) {
    found->second = make_gpu({.gelu_gemms = choice, .gemm_sm_count = sm_count});
  }
  return found->second;
}

/// By default our own kernels take larger GEMMs only; here, all.
inline const TestBackend& own_gelu(int sm_count = kAllSms) {
  return gelu_gpu(GeluGemms::kOwn, sm_count);
}

/// Every finite number of f16 or bf16, and zeros.
inline HostTensor<float> every_number(DType dtype) {
  HostTensor<float> numbers({65536});
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto pattern = static_cast<uint16_t>(bits);
    const float value =
        dtype == DType::kF16 ? to_float(Half{pattern}) : to_float(BFloat16{pattern});
    numbers.values[bits] = std::isfinite(value) ? value : 0.0f;
  }
  return numbers;
}

/// Expects that own kernels refuse what `run` does, with this text in the message.
template <class Run>
void expect_refused(const Run& run, const char* words) {
  EXPECT_THAT(error_of([&] { run(); }, ExitCode::kUsage), HasSubstr(words));
}

}  // namespace bertha::testing

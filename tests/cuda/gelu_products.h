#pragma once

#include <gmock/gmock.h>

#include <map>
#include <utility>

#include "kernels/base/error.h"
#include "tests/cuda/linear_case.h"

namespace bertha::testing {

using GeluProducts = CudaOptions::GeluProducts;

inline constexpr int kAllMultiprocessors = 0;
/// So few that each gets several tiles in turn.
inline constexpr int kFewMultiprocessors = 6;

/// The GPU with that choice of kernels, made once per program.
inline const TestBackend& gelu_gpu(GeluProducts choice, int multiprocessors) {
  static std::map<std::pair<GeluProducts, int>, TestBackend> made;
  const auto [found, is_new] = made.try_emplace({choice, multiprocessors});
  if (is_new) {
    found->second = make_gpu({.gelu_products = choice, .gemm_multiprocessors = multiprocessors});
  }
  return found->second;
}

/// By default our own kernels take larger products only; here, all.
inline const TestBackend& own_gelu(int multiprocessors = kAllMultiprocessors) {
  return gelu_gpu(GeluProducts::kOwn, multiprocessors);
}

/// That own kernels refuse what `run` does, with these words.
template <class Run>
void expect_refused(const Run& run, const char* words) {
  try {
    run();
    ADD_FAILURE() << "was taken: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::kUsage);
    EXPECT_THAT(error.what(), ::testing::HasSubstr(words));
  }
}

}  // namespace bertha::testing

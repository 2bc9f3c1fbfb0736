#include "harness/plan/compute_time.h"

#include <gtest/gtest.h>

namespace bertha {
namespace {

constexpr Dims kLarge{.L = 24, .H = 1024, .A = 16, .D = 64, .F = 4096, .C = 30522, .V = 30528};

/// Tokens of Wikipedia's lengths.
MeanMicroBatch batch(double tokens) {
  return {.tokens = tokens, .squared_tokens = 386.3 * tokens, .masked = 0.15 * tokens};
}

double pass_16_bit(const Dims& dims, double tokens) {
  return pass_ms(dims, batch(tokens), GemmPrecision::k16Bit);
}
double pass_fp8(double tokens) { return pass_ms(kLarge, batch(tokens), GemmPrecision::kFp8); }

TEST(ComputeTime, RisesWithTokensLengthsAndLayers) {
  for (double tokens = 64; tokens < 1e6; tokens *= 1.1) {
    EXPECT_LT(pass_16_bit(kLarge, tokens), pass_16_bit(kLarge, 1.1 * tokens)) << tokens;
    EXPECT_LT(pass_fp8(tokens), pass_fp8(1.1 * tokens)) << tokens;
    // A token costs no more in a larger micro-batch.
    EXPECT_GE(1.1 * pass_16_bit(kLarge, tokens), pass_16_bit(kLarge, 1.1 * tokens)) << tokens;
  }
  MeanMicroBatch longer = batch(8192);
  longer.squared_tokens *= 2;
  EXPECT_LT(pass_16_bit(kLarge, 8192), pass_ms(kLarge, longer, GemmPrecision::k16Bit));
  Dims half = kLarge;
  half.L = 12;
  EXPECT_LT(pass_16_bit(half, 8192), pass_16_bit(kLarge, 8192));
  EXPECT_GT(2 * pass_16_bit(half, 8192), pass_16_bit(kLarge, 8192)) << "the head is counted once";
}

TEST(ComputeTime, Fp8SavesMoreOfALargerMicroBatch) {
  double saved = -1;
  for (const double tokens : {1024, 4096, 8192, 24576, 49152}) {
    const double more = pass_16_bit(kLarge, tokens) - pass_fp8(tokens);
    EXPECT_GT(more, saved) << tokens;
    saved = more;
  }
}

TEST(ComputeTime, SmallMicroBatchesAreBoundByLatency) {
  const auto is_bound = [](double tokens) {
    return is_bound_by_latency(kLarge, batch(tokens), GemmPrecision::k16Bit);
  };
  EXPECT_TRUE(is_bound(1024));
  EXPECT_TRUE(is_bound(2048));
  EXPECT_FALSE(is_bound(8192));
  EXPECT_FALSE(is_bound(24576));
}

}  // namespace
}  // namespace bertha

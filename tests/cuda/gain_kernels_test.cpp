#include "kernels/bench/gain_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/bench/gain_cases.h"
#include "tests/cuda/gpu.h"
#include "tests/support/tolerance.h"

namespace bertha::testing {
namespace {

constexpr int64_t kHidden = 1032;  // the last threads of a row have no columns in the second turn
constexpr int64_t kWords = 40;
constexpr DType kDTypes[] = {DType::kF16, DType::kBF16};

/// 300 tokens: 200 times word 3, the others in turns.
BenchBatch skewed_batch() {
  BenchBatch batch;
  batch.tokens = 300;
  for (int32_t t = 0; t < 300; ++t) batch.word_ids.push_back(t % 3 == 0 ? t % kWords : 3);
  return batch;
}

OpBench bench_of(DType dtype) {
  return OpBench({.device = gpu().device.get(),
                  .stream = gpu().stream.get(),
                  .ops = gpu().ops.get(),
                  .io = dtype});
}

std::vector<GainCase> cases() {
  const BenchModel model{.hidden = kHidden, .vocab_rows = kWords};
  return make_gain_kernel_cases(model, skewed_batch(), 1, *gpu().stream);
}

TEST(GainKernels, VariantsAgree) {
  for (const DType dtype : kDTypes) {
    OpBench bench = bench_of(dtype);
    for (const GainCase& made : cases()) {
      EXPECT_LE(disagreement(bench, made), 1) << made.row << " " << name(dtype);
    }
  }
}

TEST(GainKernels, AWordsRowIsTheSumOfItsTokensRows) {
  const BenchBatch batch = skewed_batch();
  for (const DType dtype : kDTypes) {
    OpBench bench = bench_of(dtype);
    const GainCase made = cases()[1];  // off: a table in f32
    ASSERT_EQ(made.row, "embedding-f32");
    const auto found = bench.values_after(made.off, {0, 2});
    ASSERT_EQ(found[1].dtype, DType::kF32);
    std::vector<double> sums(kWords * kHidden), magnitudes(kWords * kHidden);
    for (size_t i = 0; i < found[0].values.size(); ++i) {
      const int64_t token = static_cast<int64_t>(i) / kHidden;
      const int64_t word = batch.word_ids[static_cast<size_t>(token)];
      const auto at = static_cast<size_t>(word * kHidden + static_cast<int64_t>(i) % kHidden);
      sums[at] += found[0].values[i];
      magnitudes[at] += std::abs(double{found[0].values[i]});
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      ASSERT_NEAR(found[1].values[i], sums[i], tolerance::product_f32(batch.rows()) * magnitudes[i])
          << name(dtype) << " " << i;
    }
  }
}

TEST(GainKernels, BatchNormReluAndItsGradientFollowTheirFormulas) {
  for (const DType dtype : kDTypes) {
    OpBench bench = bench_of(dtype);
    const GainCase made = cases()[2];
    ASSERT_EQ(made.row, "batch-norm-mask");
    const auto found = bench.values_after(made.on, {0, 1, 2, 3, 4});
    const auto value = [&](size_t tensor, size_t i) { return double{found[tensor].values[i]}; };
    const size_t channels = 64;
    const size_t pixels = found[0].values.size() / channels;
    const double allowed = tolerance::device_row(rounding(dtype));
    int64_t positive = 0;
    for (size_t i = 0; i < found[0].values.size(); ++i) {
      const auto constant = [&](size_t k) {
        return value(4, k * channels + i / pixels % channels);
      };
      const double x = value(0, i);
      const double y = value(1, i);
      const double scaled = constant(0) * x;
      ASSERT_NEAR(y, std::max(0.0, scaled + constant(1)),
                  allowed * (std::abs(scaled) + std::abs(constant(1))));
      const double g = y > 0 ? value(2, i) : 0;
      const double terms[] = {constant(2) * g, constant(3) * x, constant(4)};
      ASSERT_NEAR(value(3, i), terms[0] + terms[1] + terms[2],
                  allowed * (std::abs(terms[0]) + std::abs(terms[1]) + std::abs(terms[2])));
      positive += y > 0 ? 1 : 0;
    }
    EXPECT_GT(positive, 0);
    EXPECT_LT(positive, std::ssize(found[0].values));
  }
}

}  // namespace
}  // namespace bertha::testing

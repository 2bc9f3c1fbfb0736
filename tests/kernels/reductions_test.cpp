#include "kernels/ops/reductions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/base/tests/tolerance.h"

namespace bertha {
namespace {

double run(std::vector<float>& values, Accumulate accumulate, double before, int threads = 1) {
  double result = before;
  run_on_cpu(SumOfSquares{.values = View(values.data(), DType::kF32,
                                         {static_cast<int64_t>(values.size())}),
                          .result = View(&result, DType::kF64, {1}),
                          .accumulate = accumulate},
             threads);
  return result;
}

std::vector<float> random_values(size_t count) {
  std::mt19937 engine(static_cast<uint32_t>(count));
  std::uniform_real_distribution<float> uniform(-3.0f, 5.0f);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(engine);
  return values;
}

TEST(SumOfSquares, EqualsALongDoubleSumAtRaggedSizes) {
  for (const size_t count : {0u, 1u, 7u, 33u, 511u, 65536u, 200001u}) {
    std::vector<float> values = random_values(count);
    long double want = 0;
    for (const float value : values) want += static_cast<long double>(value) * value;
    EXPECT_NEAR(run(values, Accumulate::kNo, 17.0, 2), static_cast<double>(want),
                tolerance::kSumF64 * static_cast<double>(want));
  }
}

TEST(SumOfSquares, AccumulateAddsToWhatIsThere) {
  std::vector<float> values = {3.0f, -4.0f};
  EXPECT_EQ(run(values, Accumulate::kYes, 17.0), 42.0);
  EXPECT_EQ(run(values, Accumulate::kNo, 17.0), 25.0);
}

TEST(SumOfSquares, IsTheSameForEveryNumberOfThreads) {
  std::vector<float> values = random_values(300007);
  EXPECT_EQ(run(values, Accumulate::kNo, 0), run(values, Accumulate::kNo, 0, 3));
}

TEST(SumOfSquares, IsNotFiniteExactlyWhenAValueIsNot) {
  std::vector<float> values(70000, std::numeric_limits<float>::max());
  EXPECT_TRUE(std::isfinite(run(values, Accumulate::kNo, 0)));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    values[69999] = bad;
    EXPECT_FALSE(std::isfinite(run(values, Accumulate::kNo, 0)));
  }
}

TEST(SumOfSquares, RefusesAResultOfAnotherDtype) {
  float values[2] = {};
  float result = 0;
  EXPECT_THROW(validate(SumOfSquares{.values = View(values, DType::kF32, {2}),
                                     .result = View(&result, DType::kF32, {1})}),
               Error);
  double wide_result = 0;
  EXPECT_THROW(validate(SumOfSquares{.values = View(values, DType::kI32, {2}),
                                     .result = View(&wide_result, DType::kF64, {1})}),
               Error);
}

}  // namespace
}  // namespace bertha

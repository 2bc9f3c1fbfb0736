#include "kernels/ops/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/finite_difference.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "tests/kernels/naive_cross_entropy.h"

namespace bertha {
namespace {

struct Case {
  Case(int64_t rows_in, int64_t columns_in, int64_t classes_in)
      : rows(rows_in), columns(columns_in), classes(classes_in) {
    for (int64_t row = 3; row < rows; row += 5) labels[row] = -1;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = classes; i < columns; ++i) logits[row * columns + i] = 100.0f;
    }
    gradient_scale[0] = 0.375f;
  }

  void run(int threads) {
    run_on_cpu(CrossEntropy{.logits = logits.view(),
                            .labels = labels.view(),
                            .gradient_scale = gradient_scale.view(),
                            .loss_sum = loss_sum.view(),
                            .correct = correct.view(),
                            .rows_counted = rows_counted.view(),
                            .classes = classes,
                            .write_gradient = write_gradient},
               threads);
  }

  int64_t rows;
  int64_t columns;
  int64_t classes;
  bool write_gradient = true;
  HostTensor<float> logits = random_tensor({rows, columns}, 1);
  HostTensor<int32_t> labels = random_ids(rows, static_cast<int32_t>(classes), 2);
  HostTensor<float> gradient_scale{1};
  HostTensor<double> loss_sum{1};
  HostTensor<int64_t> correct{1};
  HostTensor<int64_t> rows_counted{1};
};

struct Shape {
  int64_t rows, columns, classes;
};
constexpr Shape kShapes[] = {{0, 8, 5},  {1, 1, 1},     {7, 33, 33},
                             {33, 2, 2}, {511, 40, 37}, {20, 1000, 999}};

TEST(CrossEntropy, LossCountsAndGradientMatchTheDefinition) {
  for (const Shape& shape : kShapes) {
    Case c(shape.rows, shape.columns, shape.classes);
    const NaiveCrossEntropy want(c.logits, c.labels, shape.classes, 0.375);
    c.run(1);
    const std::string what =
        concat(" at [", shape.rows, ",", shape.columns, "], ", shape.classes, " classes");
    EXPECT_NEAR(c.loss_sum[0], want.loss, tolerance::kRowF32 * (want.loss + 1.0)) << what;
    EXPECT_EQ(c.correct[0], want.correct) << what;
    EXPECT_EQ(c.rows_counted[0], want.rows) << what;
    expect_close(c.logits.values, want.gradient, tolerance::kRowF32, "gradient" + what, 0.375);
  }
}

TEST(CrossEntropy, GradientMatchesFiniteDifferencesOfTheLoss) {
  Case c(7, 24, 21);
  Case differentiated = c;
  differentiated.run(1);
  for (float& value : differentiated.logits.values) value /= 0.375f;
  c.write_gradient = false;
  const auto loss = [&] {
    c.loss_sum[0] = 0.0;
    c.run(1);
    return WeightedSum{.value = c.loss_sum[0], .magnitude = c.loss_sum[0]};
  };
  expect_gradient("logits", c.logits, differentiated.logits, loss);
}

TEST(CrossEntropy, EvaluationLeavesTheLogits) {
  Case c(33, 40, 37);
  Case trained = c;
  const std::vector<float> before = c.logits.values;
  c.write_gradient = false;
  c.run(1);
  trained.run(1);
  EXPECT_EQ(c.logits.values, before);
  EXPECT_EQ(c.loss_sum[0], trained.loss_sum[0]);
  EXPECT_EQ(c.correct[0], trained.correct[0]);
}

TEST(CrossEntropy, SumsAddToWhatIsThere) {
  Case c(33, 40, 37);
  c.write_gradient = false;
  c.run(1);
  const double loss = c.loss_sum[0];
  const int64_t correct = c.correct[0];
  const int64_t counted = c.rows_counted[0];
  c.run(1);
  EXPECT_DOUBLE_EQ(c.loss_sum[0], 2 * loss);
  EXPECT_EQ(c.correct[0], 2 * correct);
  EXPECT_EQ(c.rows_counted[0], 2 * counted);
}

TEST(CrossEntropy, TiesGoToTheLowestId) {
  Case c(2, 8, 8);
  c.logits.values.assign(16, 0.5f);
  c.labels.values = {0, 1};
  c.run(1);
  EXPECT_EQ(c.correct[0], 1);
}

TEST(CrossEntropy, LargeLogitsDoNotOverflowAndNaNShows) {
  Case c(2, 8, 8);
  for (float& value : c.logits.values) value *= 1e4f;
  c.run(1);
  EXPECT_TRUE(std::isfinite(c.loss_sum[0]));
  for (const float value : c.logits.values) EXPECT_TRUE(std::isfinite(value));
  c.logits[3] = std::nanf("");
  c.run(1);
  EXPECT_TRUE(std::isnan(c.loss_sum[0]));
}

TEST(CrossEntropy, RefusesALabelBeyondTheClasses) {
  Case c(7, 40, 37);
  c.labels[2] = 37;
  EXPECT_THROW(c.run(1), Error);
}

TEST(CrossEntropy, IsTheSameForEveryNumberOfThreads) {
  Case one(511, 40, 37);
  Case three = one;
  one.run(1);
  three.run(3);
  EXPECT_EQ(one.loss_sum[0], three.loss_sum[0]);
  EXPECT_EQ(one.correct[0], three.correct[0]);
  EXPECT_EQ(one.logits.values, three.logits.values);
}

}  // namespace
}  // namespace bertha

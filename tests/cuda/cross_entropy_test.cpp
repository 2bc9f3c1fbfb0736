#include "kernels/ops/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/tests/tolerance.h"
#include "tests/cuda/expect_each_close.h"
#include "tests/cuda/gpu.h"
#include "tests/kernels/naive_cross_entropy.h"

namespace bertha::testing {
namespace {

using Doubles = std::vector<double>;

constexpr float kScale = 0.375f;

struct Shape {
  int64_t rows;
  int64_t columns;
  int64_t classes;
};
// Two classes, odd widths, the real vocabulary, and rows too long for shared memory: f32 from
// 60,000 on, 16-bit types from 120,000.
constexpr Shape kShapes[] = {
    {0, 8, 8},     {1, 2, 2},       {96, 2, 2},         {7, 40, 37},       {33, 7, 7},
    {511, 24, 24}, {3, 1001, 1000}, {11, 30528, 30522}, {3, 60000, 59995}, {2, 120008, 120001}};

struct Case {
  Case(DType io_in, const Shape& shape_in)
      : io(io_in),
        shape(shape_in),
        logits(rounded_to(io, random_tensor({shape.rows, shape.columns}, 1))),
        labels(random_ids(shape.rows, static_cast<int32_t>(shape.classes), 2)) {
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t i = shape.classes; i < shape.columns; ++i) {
        logits[row * shape.columns + i] = 100.0f;  // no class: takes no part
      }
      if (row % 5 == 3) labels[row] = -1;
      if (row % 5 != 1 || labels[row] < 0) continue;
      // The label is the largest, in every other such row with an equal before it.
      logits[row * shape.columns + labels[row]] = 3.0f;
      if (row % 2 == 0 && labels[row] > 0) {
        logits[row * shape.columns + labels[row] / 2] = 3.0f;
      }
    }
  }

  struct Result {
    HostTensor<float> logits;
    double loss_sum;
    int64_t correct;
    int64_t rows_counted;
  };
  /// The totals begin at 2, 3 and 5.
  Result run(bool write_gradient) const {
    const DeviceTensor logits_on(gpu(), io, logits);
    const DeviceTensor labels_on(gpu(), labels);
    const DeviceTensor scale_on(gpu(), DType::kF32, HostTensor<float>({1}, kScale));
    const DeviceTensor loss_sum(gpu(), HostTensor<double>({1}, 2.0));
    const DeviceTensor correct(gpu(), HostTensor<int64_t>({1}, 3));
    const DeviceTensor rows_counted(gpu(), HostTensor<int64_t>({1}, 5));
    gpu().ops->run(CrossEntropy{.logits = logits_on.view(),
                                .labels = labels_on.view(),
                                .gradient_scale = scale_on.view(),
                                .loss_sum = loss_sum.view(),
                                .correct = correct.view(),
                                .rows_counted = rows_counted.view(),
                                .classes = shape.classes,
                                .write_gradient = write_gradient});
    return {logits_on.floats(), loss_sum.values<double>()[0] - 2.0,
            correct.values<int64_t>()[0] - 3, rows_counted.values<int64_t>()[0] - 5};
  }

  DType io;
  Shape shape;
  HostTensor<float> logits;
  HostTensor<int32_t> labels;
};

TEST(CudaCrossEntropy, LossGradientAndCountsMatchTheDefinition) {
  for (const DType io : kIoTypes) {
    for (const Shape& shape : kShapes) {
      const Case c(io, shape);
      const NaiveCrossEntropy want(c.logits, c.labels, shape.classes, kScale);
      const Case::Result got = c.run(true);
      const std::string what = concat(name(io), " [", shape.rows, ",", shape.columns, "]");
      // The logarithm passes the sum's relative error on and rounds at most some ten itself.
      EXPECT_NEAR(got.loss_sum, want.loss,
                  2 * tolerance::kDeviceSoftmax * static_cast<double>(shape.rows))
          << what;
      EXPECT_EQ(got.correct, want.correct) << what;
      EXPECT_EQ(got.rows_counted, want.rows) << what;
      Doubles magnitude = want.magnitude;
      // f16 has a fixed step of 2^-24 below 2^-14.
      const double smallest = io == DType::kF16 ? std::ldexp(1.0, -25) : 0.0;
      const double relative = rounding(io) + tolerance::kDeviceSoftmax;
      for (double& value : magnitude) value += value > 0.0 ? smallest / relative : 0.0;
      expect_each_close(got.logits.values, want.gradient, magnitude, relative, "gradient " + what);
    }
  }
}

TEST(CudaCrossEntropy, EvaluationLeavesTheLogits) {
  for (const DType io : kIoTypes) {
    for (const Shape& shape : kShapes) {
      const Case c(io, shape);
      const Case::Result trained = c.run(true);
      const Case::Result got = c.run(false);
      EXPECT_EQ(got.logits.values, c.logits.values);
      EXPECT_EQ(got.loss_sum, trained.loss_sum);  // also bit for bit repeatable
      EXPECT_EQ(got.correct, trained.correct);
      EXPECT_EQ(got.rows_counted, trained.rows_counted);
    }
  }
}

TEST(CudaCrossEntropy, LargeLogitsDoNotOverflowAndNaNShows) {
  Case c(DType::kF32, {2, 40, 40});
  for (float& value : c.logits.values) value *= 1e4f;
  const Case::Result large = c.run(true);
  EXPECT_TRUE(std::isfinite(large.loss_sum));
  for (const float value : large.logits.values) EXPECT_TRUE(std::isfinite(value));
  c.logits[3] = std::nanf("");
  const Case::Result wrong = c.run(true);
  EXPECT_TRUE(std::isnan(wrong.loss_sum));
  EXPECT_TRUE(std::isnan(wrong.logits[0]));
}

}  // namespace
}  // namespace bertha::testing

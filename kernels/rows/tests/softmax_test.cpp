#include "kernels/rows/ops/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/cpu/element_types.h"
#include "kernels/base/tests/backward_checks.h"
#include "kernels/base/tests/finite_difference.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/tests/expect_near.h"
#include "kernels/rows/tests/golden.h"
#include "kernels/rows/tests/softmax_case.h"

namespace bertha {
namespace {

constexpr float kScale = 0.375f;
constexpr uint64_t kSeed = 99;
constexpr uint64_t kStep = 1234;
constexpr uint32_t kSite = 5;

template <class T>
HostTensor<T> narrowed(const HostTensor<float>& values) {
  HostTensor<T> narrow;
  narrow.extents = values.extents;
  for (const float value : values.values) {
    narrow.values.push_back(from_double<T>(static_cast<double>(value)));
  }
  return narrow;
}

template <class T>
std::vector<double> widened(const HostTensor<T>& values) {
  std::vector<double> wide;
  for (const T value : values.values) wide.push_back(to_double(value));
  return wide;
}

/// Half a unit in the last place of numbers in [1, 2).
template <class T>
double rounding_of() {
  if (std::is_same_v<T, double>) return tolerance::kRoundF64;
  if (std::is_same_v<T, float>) return tolerance::kRoundF32;
  return std::is_same_v<T, Half> ? 1.0 / 2048 : 1.0 / 256;
}

/// Scores [B, A, Q, C] with a bias [1, A, Q, C] and a mask [B, 1, 1, C].
template <class T>
struct Case {
  Case(int64_t batch_in, int64_t columns_in, SoftmaxKind kind_in, float probability_in = 0.0f)
      : batch(batch_in), columns(columns_in), kind(kind_in), probability(probability_in) {
    for (int64_t i = 0; i < mask.elements(); ++i) mask[i] = i % 5 != 2 ? 1 : 0;
  }

  int64_t rows() const { return batch * 6; }
  Dropout dropout() { return {.random = random.view(), .probability = probability, .site = kSite}; }

  void forward(int threads) {
    run_on_cpu(SoftmaxFwd{.x = x.view(),
                          .bias = bias.view(),
                          .mask = mask.view(),
                          .y = y.view(),
                          .dropped = dropped.view(),
                          .kept_mask = kept.view(),
                          .kind = kind,
                          .scale = kScale,
                          .dropout = dropout()},
               threads);
  }

  void backward(int threads, Accumulate = Accumulate::kNo) {
    run_on_cpu(SoftmaxBwd{.dy = dy.view(),
                          .y = y.view(),
                          .kept_mask = kept.view(),
                          .dx = dx.view(),
                          .kind = kind,
                          .scale = kScale,
                          .dropout = dropout()},
               threads);
  }

  NaiveSoftmax naive() const {
    NaiveSoftmax naive{
        .z = widened(x), .columns = columns, .is_log = kind == SoftmaxKind::kLogSoftmax};
    for (int64_t i = 0; i < std::ssize(naive.z); ++i) {
      const int64_t per_batch = 6 * columns;
      double& z = naive.z[static_cast<size_t>(i)];
      z = z * static_cast<double>(kScale) + to_double(bias[i % per_batch]);
      if (mask[i / per_batch * columns + i % columns] == 0) z = -kInf;
    }
    return naive;
  }

  int64_t batch, columns;
  SoftmaxKind kind;
  float probability;
  HostTensor<T> x = narrowed<T>(random_tensor({batch, 2, 3, columns}, 1));
  HostTensor<T> bias = narrowed<T>(random_tensor({1, 2, 3, columns}, 2));
  HostTensor<uint8_t> mask{{batch, 1, 1, columns}};
  HostTensor<T> y = narrowed<T>(garbage_tensor({batch, 2, 3, columns}));
  HostTensor<T> dropped = y;
  HostTensor<uint8_t> kept{{rows(), softmax_mask_columns(columns) / 8}};
  HostTensor<T> dy = narrowed<T>(random_tensor({batch, 2, 3, columns}, 3));
  HostTensor<T> dx = y;
  HostTensor<uint64_t> random = random_state(kSeed, kStep);
};

template <class T>
class SoftmaxOf : public ::testing::Test {};
using Types = ::testing::Types<float, double, Half, BFloat16>;
TYPED_TEST_SUITE(SoftmaxOf, Types);

TYPED_TEST(SoftmaxOf, BothDirectionsMatchTheDefinition) {
  using T = TypeParam;
  for (const SoftmaxKind kind : {SoftmaxKind::kSoftmax, SoftmaxKind::kLogSoftmax}) {
    for (const int64_t columns : kSoftmaxWidths) {
      for (const int64_t batch : {0, 1, 3}) {
        if (columns > 2000 && batch == 3) continue;
        Case<T> c(batch, columns, kind);
        c.forward(1);
        c.backward(1);
        const NaiveSoftmax naive = c.naive();
        const std::vector<double> want = naive.forward();
        const std::string shape = concat(" [", c.rows(), ",", columns, "] kind ", int(kind));
        const double stored = rounding_of<T>() + tolerance::kSumF64;
        expect_near(widened(c.y), want, stored, "y" + shape);
        // From the stored y, so that only its own rounding counts.
        std::vector<double> dx = naive.backward(widened(c.y), widened(c.dy));
        for (double& value : dx) value *= static_cast<double>(kScale);
        expect_near(widened(c.dx), dx, stored, "dx" + shape);
      }
    }
  }
}

TYPED_TEST(SoftmaxOf, DropoutDrawsByRowsOfWholeWords) {
  using T = TypeParam;
  const NaiveDropout drops{.seed = kSeed, .step = kStep, .site = kSite, .probability = 0.3f};
  for (const int64_t columns : {1, 31, 32, 33, 100, 1025}) {
    Case<T> c(2, columns, SoftmaxKind::kSoftmax, drops.probability);
    c.forward(1);
    c.backward(1);
    const std::vector<double> y = widened(c.y);
    const std::vector<double> exact = c.naive().forward();
    std::vector<double> want(y.size());
    std::vector<double> g = widened(c.dy);
    for (int64_t row = 0; row < c.rows(); ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        const int64_t element = softmax_drawn_element(row, column, columns);
        const size_t i = static_cast<size_t>(row * columns + column);
        EXPECT_EQ(softmax_is_kept(c.kept.values, row, column, columns), !drops.drops(element));
        want[i] = exact[i] * drops.factor(element);
        g[i] *= drops.factor(element);
      }
    }
    const std::string shape = concat(" at ", columns);
    // The factor is rounded to f32.
    const double stored = rounding_of<T>() + 2 * tolerance::kRoundF32;
    expect_near(widened(c.dropped), want, stored, "dropped" + shape);
    std::vector<double> dx = c.naive().backward(y, g);
    for (double& value : dx) value *= static_cast<double>(kScale);
    expect_near(widened(c.dx), dx, 2 * stored, "dx" + shape);
  }
}

TEST(Softmax, BackwardMatchesFiniteDifferences) {
  for (const float probability : {0.0f, 0.4f}) {
    Case<float> c(2, 9, SoftmaxKind::kSoftmax, probability);
    c.forward(1);
    c.backward(1);
    expect_gradient("x", c.x, c.dx, [&] {
      c.forward(1);
      return weighted_sum(probability > 0 ? c.dropped : c.y, c.dy);
    });
  }
}

TEST(Softmax, LogBackwardMatchesFiniteDifferences) {
  Case<float> c(2, 9, SoftmaxKind::kLogSoftmax);
  c.mask.values.assign(c.mask.values.size(), 1);
  c.forward(1);
  c.backward(1);
  expect_gradient("x", c.x, c.dx, [&] {
    c.forward(1);
    return weighted_sum(c.y, c.dy);
  });
}

TEST(Softmax, IsTheSameForEveryNumberOfThreads) {
  using Case = Case<float>;
  const Case start(40, 33, SoftmaxKind::kSoftmax, 0.2f);
  expect_same_for_threads(start, {&Case::y, &Case::dropped, &Case::dx});
  expect_same_for_threads(start, {&Case::kept});
}

/// Softmax or log softmax of rows without mask and dropout, and back.
template <class T>
struct PlainRows {
  PlainRows(HostTensor<T> x, HostTensor<T> dy, SoftmaxKind kind, float scale = 1.0f,
            HostTensor<T> bias = {}) {
    y = dx = x;
    run_on_cpu(SoftmaxFwd{.x = x.view(),
                          .bias = bias.values.empty() ? View() : bias.view(),
                          .mask = View(),
                          .y = y.view(),
                          .dropped = View(),
                          .kept_mask = View(),
                          .kind = kind,
                          .scale = scale});
    run_on_cpu(SoftmaxBwd{.dy = dy.view(),
                          .y = y.view(),
                          .kept_mask = View(),
                          .dx = dx.view(),
                          .kind = kind,
                          .scale = scale});
  }
  HostTensor<T> y, dx;
};

PlainRows<float> plain_row(std::vector<float> row, SoftmaxKind kind) {
  HostTensor<float> x({std::ssize(row)}), dy({std::ssize(row)}, 1.0f);
  x.values = std::move(row);
  dy[0] = 2.0f;
  return PlainRows<float>(x, dy, kind);
}

TEST(Softmax, NothingAboveMinusInfinityGivesZerosAndNoGradient) {
  const float inf = std::numeric_limits<float>::infinity();
  const auto soft = plain_row({-inf, -inf, -inf}, SoftmaxKind::kSoftmax);
  EXPECT_EQ(soft.y.values, std::vector<float>(3, 0.0f));
  EXPECT_EQ(soft.dx.values, std::vector<float>(3, 0.0f));
  const auto log = plain_row({-inf, -inf, -inf}, SoftmaxKind::kLogSoftmax);
  EXPECT_EQ(log.y.values, std::vector<float>(3, -inf));
  EXPECT_EQ(log.dx.values, std::vector<float>(3, 0.0f));
}

TEST(Softmax, NaNAndPlusInfinityMakeTheirRowNaN) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const SoftmaxKind kind : {SoftmaxKind::kSoftmax, SoftmaxKind::kLogSoftmax}) {
    for (const float bad : {std::nanf(""), inf}) {
      for (const float other : {1.0f, -inf}) {
        const auto row = plain_row({other, bad, other}, kind);
        EXPECT_TRUE(std::isnan(row.y[1]));
        EXPECT_TRUE(std::isnan(row.y[0])) << other << ' ' << bad;
        EXPECT_TRUE(std::isnan(row.dx[0]));
      }
    }
  }
}

TEST(Softmax, WhatIsMaskedIsNotLookedAt) {
  Case<float> c(2, 33, SoftmaxKind::kSoftmax);
  Case<float> spoiled = c;
  for (int64_t i = 0; i < spoiled.x.elements(); ++i) {
    if (c.mask[i / (6 * 33) * 33 + i % 33] == 0) spoiled.x[i] = std::nanf("");
  }
  c.forward(1);
  spoiled.forward(1);
  EXPECT_EQ(c.y.values, spoiled.y.values);
}

template <class T>
HostTensor<T> matrix(const std::vector<double>& numbers, int64_t columns) {
  HostTensor<T> values({std::ssize(numbers) / columns, columns});
  for (int64_t i = 0; i < values.elements(); ++i) {
    values[i] = static_cast<T>(numbers[static_cast<size_t>(i)]);
  }
  return values;
}

template <class T>
void expect_golden_softmax(const GoldenCase& golden) {
  const std::vector<double> bias = golden.numbers("bias");
  const int64_t columns = std::ssize(bias);
  const SoftmaxKind kind =
      golden.number("log") != 0.0 ? SoftmaxKind::kLogSoftmax : SoftmaxKind::kSoftmax;
  const PlainRows<T> rows(matrix<T>(golden.numbers("x"), columns),
                          matrix<T>(golden.numbers("dy"), columns), kind,
                          static_cast<float>(golden.number("scale")), matrix<T>(bias, columns));
  // Fifteen digits of the file; the exponent of a row at 1e4 loses 2^12 units of f64. dx reads the
  // stored y.
  const double stored = 8 * rounding_of<T>() + 8192 * tolerance::kRoundF64;
  expect_near(widened(rows.y), golden.numbers("y"), stored, "y");
  expect_near(widened(rows.dx), golden.numbers("dx"), 4 * stored, "dx");
}

TEST(Softmax, MatchesPyTorchInDouble) {
  const std::vector<GoldenCase> cases = read_golden("row_golden.txt", "softmax");
  ASSERT_EQ(cases.size(), 8u);
  for (const GoldenCase& golden : cases) {
    expect_golden_softmax<double>(golden);
    expect_golden_softmax<float>(golden);
  }
}

}  // namespace
}  // namespace bertha

#include "kernels/rows/ops/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/tests/backward_checks.h"
#include "kernels/base/tests/expect_close.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/tests/expect_near.h"
#include "kernels/rows/tests/golden.h"
#include "kernels/rows/tests/naive_layer_norm.h"

namespace bertha {
namespace {

template <class T>
HostTensor<T> as(const HostTensor<float>& values) {
  HostTensor<T> same;
  same.extents = values.extents;
  same.values.assign(values.values.begin(), values.values.end());
  return same;
}

/// In f32 or f64, of the same numbers.
template <class T>
struct CaseOf {
  CaseOf(int64_t rows_in, int64_t columns_in) : rows(rows_in), columns(columns_in) {}

  LayerNormFwd forward_args() {
    return {.x = x.view(),
            .gamma = gamma.view(),
            .beta = beta.view(),
            .y = y.view(),
            .mean = mean.view(),
            .rstd = rstd.view(),
            .epsilon = epsilon};
  }
  LayerNormBwd backward_args() {
    return {.dy = dy.view(),
            .x = x.view(),
            .mean = mean.view(),
            .rstd = rstd.view(),
            .gamma = gamma.view(),
            .dx = dx.view(),
            .dgamma = dgamma.view(),
            .dbeta = dbeta.view()};
  }
  void forward(int threads) { run_on_cpu(forward_args(), threads); }
  void backward(int threads, Accumulate accumulate) {
    LayerNormBwd args = backward_args();
    args.accumulate = accumulate;
    run_on_cpu(args, threads);
  }

  NaiveNormInput naive() const {
    return {x.doubles(),     rows,           columns,
            gamma.doubles(), beta.doubles(), static_cast<double>(epsilon)};
  }

  int64_t rows;
  int64_t columns;
  float epsilon = 0.25f;
  HostTensor<T> x = as<T>(random_tensor({rows, columns}, 1));
  HostTensor<T> gamma = as<T>(random_tensor({columns}, 2));
  HostTensor<T> beta = as<T>(random_tensor({columns}, 3));
  HostTensor<T> y = as<T>(garbage_tensor({rows, columns}));
  HostTensor<T> mean = as<T>(garbage_tensor({rows}));
  HostTensor<T> rstd = mean;
  HostTensor<T> dy = as<T>(random_tensor({rows, columns}, 4));
  HostTensor<T> dx = y;
  HostTensor<T> dgamma = as<T>(garbage_tensor({columns}));
  HostTensor<T> dbeta = dgamma;
};
using Case = CaseOf<float>;

constexpr std::pair<int64_t, int64_t> kShapes[] = {{0, 16}, {1, 1},   {7, 33},
                                                   {33, 7}, {5, 511}, {511, 24}};

TEST(LayerNorm, ForwardMatchesTheDefinition) {
  for (const auto& [rows, columns] : kShapes) {
    Case c(rows, columns);
    c.forward(1);
    const NaiveNorm want = naive_layer_norm(c.naive());
    const std::string shape = concat(" at [", rows, ",", columns, "]");
    // Largest terms of y: 2 |x| rstd gamma + beta, each below 4 * 2 * 2 + 2.
    expect_close(c.y.values, want.y, tolerance::kRowF32, "y" + shape, 18.0);
    expect_close(c.mean.values, want.mean, tolerance::kRowF32, "mean" + shape, 2.0);
    expect_close(c.rstd.values, want.rstd, tolerance::kRowF32, "rstd" + shape);
  }
}

TEST(LayerNorm, BackwardMatchesTheJacobian) {
  for (const auto& [rows, columns] : kShapes) {
    Case c(rows, columns);
    c.forward(1);
    c.backward(1, Accumulate::kNo);
    const NaiveNormGradient want = naive_layer_norm_backward(c.naive(), c.dy.doubles());
    const std::string shape = concat(" at [", rows, ",", columns, "]");
    expect_close(c.dx.values, want.dx, tolerance::kRowGradientF32, "dx" + shape, 8.0);
    const double sum_scale = 8.0 + largest_magnitude(want.dgamma);
    expect_close(c.dgamma.values, want.dgamma, tolerance::kRowF32, "dgamma" + shape, sum_scale);
    expect_close(c.dbeta.values, want.dbeta, tolerance::kRowF32, "dbeta" + shape);
  }
}

TEST(LayerNorm, BackwardMatchesFiniteDifferences) {
  expect_finite_differences(Case(5, 33), {{"x", &Case::x, &Case::dx},
                                          {"gamma", &Case::gamma, &Case::dgamma},
                                          {"beta", &Case::beta, &Case::dbeta}});
}

TEST(LayerNorm, AccumulateAddsToTheParameterGradients) {
  expect_backward_adds(Case(33, 24), {&Case::dgamma, &Case::dbeta});
}

TEST(LayerNorm, InputGradientMayReplaceTheOutputGradient) {
  Case c(7, 33);
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  LayerNormBwd in_place = c.backward_args();
  in_place.dx = c.dy.view();
  run_on_cpu(in_place);
  EXPECT_EQ(c.dy.values, c.dx.values);
}

TEST(LayerNorm, IsTheSameForEveryNumberOfThreads) {
  expect_same_for_threads(Case(511, 33), {&Case::y, &Case::dx, &Case::dgamma, &Case::dbeta});
}

TEST(LayerNorm, DoubleKeepsItsDigits) {
  for (const auto& [rows, columns] : kShapes) {
    CaseOf<double> c(rows, columns);
    c.forward(1);
    c.backward(1, Accumulate::kNo);
    const NaiveNorm want = naive_layer_norm(c.naive());
    const NaiveNormGradient gradient = naive_layer_norm_backward(c.naive(), c.dy.doubles());
    const std::string shape = concat(" at [", rows, ",", columns, "]");
    expect_near(c.y.values, want.y, tolerance::kSumF64, "y" + shape);
    expect_near(c.rstd.values, want.rstd, tolerance::kSumF64, "rstd" + shape);
    expect_near(c.dx.values, gradient.dx, tolerance::kSumF64, "dx" + shape);
    expect_near(c.dgamma.values, gradient.dgamma, tolerance::kSumF64, "dgamma" + shape);
    expect_near(c.dbeta.values, gradient.dbeta, tolerance::kSumF64, "dbeta" + shape);
  }
}

/// Elements and mean are short numbers, whose squares all end in the same bits. The truth comes
/// from whole numbers.
TEST(LayerNorm, DoubleKeepsItsDigitsInWideRowsOfShortNumbers) {
  constexpr int64_t kRows = 5;
  for (const int64_t columns : {8192, 16384}) {
    CaseOf<double> c(kRows, columns);
    c.epsilon = 0.0625f;
    LayerNormFwd plain = c.forward_args();
    plain.gamma = plain.beta = View();
    run_on_cpu(plain);
    std::vector<double> want;
    for (int64_t row = 0; row < kRows; ++row) {
      int64_t sum = 0;
      int64_t squares = 0;
      for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
        const auto units = static_cast<int64_t>(c.x[i] * 1024.0);
        sum += units;
        squares += units * units;
      }
      const auto scale = static_cast<double>(columns * 1024);
      const double variance = static_cast<double>(columns * squares - sum * sum) / scale / scale;
      want.push_back(1.0 / std::sqrt(variance + static_cast<double>(c.epsilon)));
    }
    expect_near(c.rstd.values, want,
                tolerance::device_row_statistics(tolerance::kRoundF64, true, columns),
                concat("rstd of ", columns));
  }
}

TEST(LayerNorm, MissingParametersAreOneAndZero) {
  Case given(7, 33);
  given.gamma.values.assign(33, 1.0f);
  given.beta.values.assign(33, 0.0f);
  given.forward(1);
  given.backward(1, Accumulate::kNo);
  Case c(7, 33);
  LayerNormFwd forward = c.forward_args();
  forward.gamma = forward.beta = View();
  run_on_cpu(forward);
  LayerNormBwd backward = c.backward_args();
  backward.gamma = backward.dgamma = backward.dbeta = View();
  run_on_cpu(backward);
  EXPECT_EQ(c.y.values, given.y.values);
  EXPECT_EQ(c.dx.values, given.dx.values);
}

template <class T>
void expect_same_without_statistics() {
  CaseOf<T> given(7, 33);
  given.forward(1);
  CaseOf<T> c(7, 33);
  LayerNormFwd forward = c.forward_args();
  forward.mean = forward.rstd = View();
  run_on_cpu(forward);
  EXPECT_EQ(c.y.values, given.y.values);
}

TEST(LayerNorm, StatisticsWithoutDataAreNotWanted) {
  expect_same_without_statistics<float>();
  expect_same_without_statistics<double>();
}

TEST(LayerNorm, AResidualIsAddedFirst) {
  Case c(7, 33);
  HostTensor<float> residual = random_tensor({7, 33}, 9);
  HostTensor<float> sum = c.y;
  LayerNormFwd args = c.forward_args();
  args.residual = residual.view();
  args.sum = sum.view();
  run_on_cpu(args);
  Case added(7, 33);
  for (int64_t i = 0; i < sum.elements(); ++i) added.x[i] += residual[i];
  added.forward(1);
  EXPECT_EQ(sum.values, added.x.values);
  EXPECT_EQ(c.y.values, added.y.values);
}

/// Both directions on the inputs of the file, which has fifteen digits.
template <class T>
void expect_golden(const GoldenCase& golden, double tolerance) {
  CaseOf<T> c(5, std::ssize(golden.numbers("gamma")));
  c.epsilon = static_cast<float>(golden.number("epsilon"));
  const auto read = [&](HostTensor<T>& input, const char* field) {
    const std::vector<double> numbers = golden.numbers(field);
    ASSERT_EQ(input.values.size(), numbers.size()) << field;
    for (size_t i = 0; i < numbers.size(); ++i) input.values[i] = static_cast<T>(numbers[i]);
  };
  read(c.x, "x");
  read(c.gamma, "gamma");
  read(c.beta, "beta");
  read(c.dy, "dy");
  c.forward(1);
  c.backward(1, Accumulate::kNo);
  expect_near(c.y.doubles(), golden.numbers("y"), tolerance, "y");
  expect_near(c.dx.doubles(), golden.numbers("dx"), tolerance, "dx");
  expect_near(c.dgamma.doubles(), golden.numbers("dgamma"), tolerance, "dgamma");
  expect_near(c.dbeta.doubles(), golden.numbers("dbeta"), tolerance, "dbeta");
}

TEST(LayerNorm, MatchesPyTorchInDouble) {
  const std::vector<GoldenCase> cases = read_golden("row_golden.txt", "layer_norm");
  ASSERT_EQ(cases.size(), 4u);
  for (const GoldenCase& golden : cases) {
    // The statistics of rows at 1e4 are rounded to the dtype: that much of the mean is lost in each
    // element, times rstd and gamma of up to 4.
    expect_golden<double>(golden, 10000.0 * 64 * tolerance::kRoundF64);
    expect_golden<float>(golden, 10000.0 * 16 * tolerance::kRoundF32);
  }
}

}  // namespace
}  // namespace bertha

#include "kernels/ops/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/cpu/operations.h"
#include "tests/kernels/backward_checks.h"
#include "tests/kernels/naive_layer_norm.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_near.h"
#include "tests/support/tolerance.h"

namespace bertha {
namespace {

/// Of a case in f32 or f64.
template <class AnyCase>
void run_forward(AnyCase& c, int threads) {
  WorkerPool pool(threads);
  const LayerNormFwd args{.x = c.x.view(),
                          .gamma = c.gamma.view(),
                          .beta = c.beta.view(),
                          .y = c.y.view(),
                          .mean = c.mean.view(),
                          .rstd = c.rstd.view(),
                          .epsilon = c.epsilon};
  validate(args);
  run_cpu(pool, args);
}

template <class AnyCase>
void run_backward(AnyCase& c, int threads, Accumulate accumulate) {
  WorkerPool pool(threads);
  const LayerNormBwd args{.dy = c.dy.view(),
                          .x = c.x.view(),
                          .mean = c.mean.view(),
                          .rstd = c.rstd.view(),
                          .gamma = c.gamma.view(),
                          .dx = c.dx.view(),
                          .dgamma = c.dgamma.view(),
                          .dbeta = c.dbeta.view(),
                          .accumulate = accumulate};
  validate(args);
  run_cpu(pool, args);
}

struct Case {
  Case(int64_t rows_in, int64_t columns_in)
      : rows(rows_in),
        columns(columns_in),
        x(random_tensor({rows, columns}, 1)),
        gamma(random_tensor({columns}, 2)),
        beta(random_tensor({columns}, 3)),
        y(garbage_tensor({rows, columns})),
        mean(garbage_tensor({rows})),
        rstd(garbage_tensor({rows})),
        dy(random_tensor({rows, columns}, 4)),
        dx(garbage_tensor({rows, columns})),
        dgamma(garbage_tensor({columns})),
        dbeta(garbage_tensor({columns})) {}

  void forward(int threads) { run_forward(*this, threads); }
  void backward(int threads, Accumulate accumulate) { run_backward(*this, threads, accumulate); }

  NaiveNormInput naive() const {
    return {x.doubles(),     rows,           columns,
            gamma.doubles(), beta.doubles(), static_cast<double>(epsilon)};
  }

  int64_t rows;
  int64_t columns;
  float epsilon = 0.25f;
  HostTensor<float> x, gamma, beta, y, mean, rstd, dy, dx, dgamma, dbeta;
};

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
  const HostTensor<float> want = c.dx;
  WorkerPool pool(1);
  run_cpu(pool, LayerNormBwd{.dy = c.dy.view(),
                             .x = c.x.view(),
                             .mean = c.mean.view(),
                             .rstd = c.rstd.view(),
                             .gamma = c.gamma.view(),
                             .dx = c.dy.view(),
                             .dgamma = c.dgamma.view(),
                             .dbeta = c.dbeta.view()});
  EXPECT_EQ(c.dy.values, want.values);
}

TEST(LayerNorm, IsTheSameForEveryNumberOfThreads) {
  expect_same_for_threads(Case(511, 33), {&Case::y, &Case::dx, &Case::dgamma, &Case::dbeta});
}

HostTensor<double> wide(const HostTensor<float>& values) {
  HostTensor<double> same;
  same.extents = values.extents;
  same.values = values.doubles();
  return same;
}

struct DoubleCase {
  explicit DoubleCase(const Case& c)
      : x(wide(c.x)), gamma(wide(c.gamma)), beta(wide(c.beta)), dy(wide(c.dy)), epsilon(c.epsilon) {
    y = dx = x;
    mean = rstd = HostTensor<double>({c.rows});
    dgamma = dbeta = gamma;
  }

  HostTensor<double> x, gamma, beta, dy, y, dx, mean, rstd, dgamma, dbeta;
  float epsilon;
};

TEST(LayerNorm, DoubleKeepsItsDigits) {
  for (const auto& [rows, columns] : kShapes) {
    const Case c(rows, columns);
    DoubleCase d(c);
    run_forward(d, 1);
    run_backward(d, 1, Accumulate::kNo);
    const NaiveNorm want = naive_layer_norm(c.naive());
    const NaiveNormGradient gradient = naive_layer_norm_backward(c.naive(), c.dy.doubles());
    const std::string shape = concat(" at [", rows, ",", columns, "]");
    expect_near(d.y.values, want.y, tolerance::kSumF64, "y" + shape);
    expect_near(d.rstd.values, want.rstd, tolerance::kSumF64, "rstd" + shape);
    expect_near(d.dx.values, gradient.dx, tolerance::kSumF64, "dx" + shape);
    expect_near(d.dgamma.values, gradient.dgamma, tolerance::kSumF64, "dgamma" + shape);
    expect_near(d.dbeta.values, gradient.dbeta, tolerance::kSumF64, "dbeta" + shape);
  }
}

/// Elements and mean are short numbers, whose squares all end in the same bits. The truth comes
/// from whole numbers.
TEST(LayerNorm, DoubleKeepsItsDigitsInWideRowsOfShortNumbers) {
  constexpr int64_t kRows = 5;
  for (const int64_t columns : {8192, 16384}) {
    const HostTensor<float> x = random_tensor({kRows, columns}, 1);
    HostTensor<double> wide_x = wide(x), y = wide_x, mean({kRows}), rstd({kRows});
    const float epsilon = 0.0625f;
    WorkerPool pool(1);
    run_cpu(pool, LayerNormFwd{.x = wide_x.view(),
                               .gamma = View(),
                               .beta = View(),
                               .y = y.view(),
                               .mean = mean.view(),
                               .rstd = rstd.view(),
                               .epsilon = epsilon});
    std::vector<double> want;
    for (int64_t row = 0; row < kRows; ++row) {
      int64_t sum = 0;
      int64_t squares = 0;
      for (int64_t i = row * columns; i < (row + 1) * columns; ++i) {
        const auto units = static_cast<int64_t>(x.values[static_cast<size_t>(i)] * 1024.0f);
        sum += units;
        squares += units * units;
      }
      const auto scale = static_cast<double>(columns * 1024);
      const double variance = static_cast<double>(columns * squares - sum * sum) / scale / scale;
      want.push_back(1.0 / std::sqrt(variance + static_cast<double>(epsilon)));
    }
    expect_near(rstd.values, want,
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
  WorkerPool pool(1);
  const LayerNormFwd forward{.x = c.x.view(),
                             .gamma = View(),
                             .beta = View(),
                             .y = c.y.view(),
                             .mean = c.mean.view(),
                             .rstd = c.rstd.view(),
                             .epsilon = c.epsilon};
  validate(forward);
  run_cpu(pool, forward);
  const LayerNormBwd backward{.dy = c.dy.view(),
                              .x = c.x.view(),
                              .mean = c.mean.view(),
                              .rstd = c.rstd.view(),
                              .gamma = View(),
                              .dx = c.dx.view(),
                              .dgamma = View(),
                              .dbeta = View()};
  validate(backward);
  run_cpu(pool, backward);
  EXPECT_EQ(c.y.values, given.y.values);
  EXPECT_EQ(c.dx.values, given.dx.values);
}

TEST(LayerNorm, AResidualIsAddedFirst) {
  Case c(7, 33);
  HostTensor<float> residual = random_tensor({7, 33}, 9);
  HostTensor<float> sum = c.y;
  WorkerPool pool(1);
  const LayerNormFwd args{.x = c.x.view(),
                          .gamma = c.gamma.view(),
                          .beta = c.beta.view(),
                          .y = c.y.view(),
                          .mean = c.mean.view(),
                          .rstd = c.rstd.view(),
                          .epsilon = c.epsilon,
                          .residual = residual.view(),
                          .sum = sum.view()};
  validate(args);
  run_cpu(pool, args);
  Case added(7, 33);
  for (int64_t i = 0; i < sum.elements(); ++i) added.x[i] += residual[i];
  added.forward(1);
  EXPECT_EQ(sum.values, added.x.values);
  EXPECT_EQ(c.y.values, added.y.values);
}

template <class T>
std::vector<T> flat(const nlohmann::json& json) {
  std::vector<T> values;
  for (const auto& row : json) {
    if (!row.is_array()) {
      values.push_back(row);
      continue;
    }
    for (const auto& value : row) values.push_back(value);
  }
  return values;
}

TEST(LayerNorm, MatchesPyTorchInDouble) {
  std::ifstream file(std::string(BERTHA_SOURCE_DIR) + "/tests/golden/row_golden.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.at("layer_norm").size(), 4u);
  for (const auto& json : golden.at("layer_norm")) {
    const auto columns = static_cast<int64_t>(json.at("gamma").size());
    Case single(5, columns);
    single.epsilon = json.at("epsilon");
    single.x.values = flat<float>(json.at("x"));
    single.gamma.values = flat<float>(json.at("gamma"));
    single.beta.values = flat<float>(json.at("beta"));
    single.dy.values = flat<float>(json.at("dy"));
    DoubleCase exact(single);
    run_forward(exact, 1);
    run_backward(exact, 1, Accumulate::kNo);
    single.forward(1);
    single.backward(1, Accumulate::kNo);
    // The file has fifteen digits. The statistics of rows at 1e4 are rounded to the dtype: that
    // much of the mean is lost in each element, times rstd and gamma of up to 4.
    const auto expect_all = [&](const char* name, const std::vector<double>& double_values,
                                const std::vector<double>& single_values) {
      const std::vector<double> want = flat<double>(json.at(name));
      expect_near(double_values, want, 10000.0 * 64 * tolerance::kRoundF64, name);
      expect_near(single_values, want, 10000.0 * 16 * tolerance::kRoundF32, name);
    };
    expect_all("y", exact.y.values, single.y.doubles());
    expect_all("dx", exact.dx.values, single.dx.doubles());
    expect_all("dgamma", exact.dgamma.values, single.dgamma.doubles());
    expect_all("dbeta", exact.dbeta.values, single.dbeta.doubles());
  }
}

}  // namespace
}  // namespace bertha

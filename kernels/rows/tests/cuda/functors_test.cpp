#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/examples/examples.h"
#include "kernels/rows/ops/layer_norm.h"
#include "kernels/rows/ops/softmax.h"
#include "kernels/rows/tests/cuda/functors_for_others.h"
#include "kernels/rows/tests/cuda/moved_rows.h"
#include "kernels/rows/tests/cuda/row_gpu.h"
#include "kernels/rows/tests/expect_near.h"

// Load and Store functors in the kernels of all widths, against the CPU backend: the examples, and
// rows that are gathered, scattered, masked and of other types (moved_rows.h).

namespace bertha::testing {
namespace {

constexpr uint32_t kSite = 3;
constexpr float kScale = 0.375f;
constexpr float kProbability = 0.3f;
constexpr float kEpsilon = 0.0625f;

// Registers of lanes and warps (single elements, four, eight), of a block (1,032 to 16,384), teams
// (256 to 4,088), rings (16,392 to 33,792 forward, 4,096 to 65,536 backward, 8,194 and 30,522 in
// pairs), shared memory by bulk copies (softmax, 8,200 to 112,640) and by threads (8,201), and
// nowhere.
constexpr int64_t kWidths[] = {1,     2,     8,     20,    40,    129,     161,    256,
                               264,   300,   512,   513,   768,   1024,    1032,   4088,
                               4096,  4104,  8192,  8194,  8200,  8201,    16384,  16392,
                               30520, 30522, 33792, 33800, 65536, 112'640, 130'000};

/// work(rows, offset): few rows with tensors at aligned addresses, and some that are `offset`
/// elements behind one.
template <class Work>
void for_rows_and_offsets(int64_t columns, const Work& work) {
  const bool is_wide = columns > 34'000;  // the reference takes long
  for (const int64_t rows : {0, 1, 7, 33}) {
    if (rows < 7 || !is_wide) work(rows, int64_t{0});
  }
  for (const int64_t offset : {1, 2, 4}) work(is_wide ? int64_t{1} : int64_t{3}, offset);
}

HostTensor<double> wide(const HostTensor<float>& values) {
  HostTensor<double> same;
  same.extents = values.extents;
  same.values = values.doubles();
  return same;
}

void expect_softmax_of_the_cpu(int64_t rows, int64_t columns, int64_t offset) {
  const DType io = DType::kF16;
  const std::string what = concat("[", rows, ",", columns, "] offset ", offset);
  const HostTensor<float> x = rounded_to(io, random_tensor({rows, columns}, 1));
  const HostTensor<float> dy = rounded_to(io, random_tensor({rows, columns}, 2));
  HostTensor<uint8_t> mask({1, columns});
  for (int64_t i = 0; i < columns; ++i) mask[i] = i % 5 != 2 ? 1 : 0;
  HostTensor<uint8_t> kept({rows, softmax_mask_columns(columns) / 8});
  HostTensor<uint64_t> random = random_state(99, 1234);
  const HostTensor<float> garbage = garbage_tensor({rows, columns});
  const DeviceTensor x_on(gpu(), io, x, offset), dy_on(gpu(), io, dy, offset);
  const DeviceTensor y_on(gpu(), io, garbage, offset), dropped_on(gpu(), io, garbage, offset);
  const DeviceTensor dx_on(gpu(), io, garbage, offset);
  const DeviceTensor mask_on(gpu(), mask), kept_on(gpu(), kept), random_on(gpu(), random);
  const examples::MaskedSoftmax on{
      .x = x_on.view(),
      .mask = mask_on.view(),
      .y = y_on.view(),
      .dropped = dropped_on.view(),
      .kept_mask = kept_on.view(),
      .scale = kScale,
      .dropout = {.random = random_on.view(), .probability = kProbability, .site = kSite}};
  CudaContext& context = *gpu().context;
  examples::masked_softmax(context, on);
  examples::masked_softmax_gradient(context, on, dy_on.view(), dx_on.view());

  HostTensor<double> x_at = wide(x), dy_at = wide(dy);
  HostTensor<double> y_at = wide(garbage), dropped_at = y_at, dx_at = y_at;
  Dropout dropout = on.dropout;
  dropout.random = random.view();
  cpu().run(SoftmaxFwd{.x = x_at.view(),
                       .bias = View(),
                       .mask = mask.view(),
                       .y = y_at.view(),
                       .dropped = dropped_at.view(),
                       .kept_mask = kept.view(),
                       .scale = kScale,
                       .dropout = dropout});
  const double tolerance = tolerance::device_softmax(rounding(io), rounding(DType::kF32), columns);
  expect_near(y_on.numbers(), y_at.values, tolerance, "y " + what);
  EXPECT_EQ(kept_on.values<uint8_t>().values, kept.values) << what;
  expect_near(dropped_on.numbers(), dropped_at.values, 2 * tolerance, "dropped " + what);
  y_at.values = y_on.numbers();  // of the same rounding
  cpu().run(SoftmaxBwd{.dy = dy_at.view(),
                       .y = y_at.view(),
                       .kept_mask = kept.view(),
                       .dx = dx_at.view(),
                       .scale = kScale,
                       .dropout = dropout});
  expect_near(dx_on.numbers(), dx_at.values, 4 * tolerance, "dx " + what);
}

/// The reference gets the sum in f64, which the Load adds in f32; dx has an io of its own.
void expect_norm_of_the_cpu(int64_t rows, int64_t columns, int64_t offset) {
  const std::string what = concat("[", rows, ",", columns, "] offset ", offset);
  const HostTensor<float> x = rounded_to(DType::kBF16, random_tensor({rows, columns}, 1));
  const HostTensor<float> residual = rounded_to(DType::kBF16, random_tensor({rows, columns}, 2));
  const HostTensor<float> gamma = random_tensor({columns}, 3), beta = random_tensor({columns}, 4);
  const HostTensor<float> dy = rounded_to(DType::kF16, random_tensor({rows, columns}, 5));
  const HostTensor<float> garbage = garbage_tensor({rows, columns});
  const DeviceTensor x_on(gpu(), DType::kBF16, x, offset);
  const DeviceTensor residual_on(gpu(), DType::kBF16, residual, offset);
  const DeviceTensor dy_on(gpu(), DType::kF16, dy, offset);
  const DeviceTensor y_on(gpu(), DType::kF16, garbage, offset);
  const DeviceTensor dx_on(gpu(), DType::kBF16, garbage, offset);
  const DeviceTensor gamma_on(gpu(), DType::kF32, gamma), beta_on(gpu(), DType::kF32, beta);
  const DeviceTensor mean_on(gpu(), DType::kF32, garbage_tensor({rows}));
  const DeviceTensor rstd_on(gpu(), DType::kF32, garbage_tensor({rows}));
  const DeviceTensor dgamma_on(gpu(), DType::kF32, garbage_tensor({columns}));
  const DeviceTensor dbeta_on(gpu(), DType::kF32, garbage_tensor({columns}));
  const examples::ResidualNorm on{.x = x_on.view(),
                                  .residual = residual_on.view(),
                                  .gamma = gamma_on.view(),
                                  .beta = beta_on.view(),
                                  .y = y_on.view(),
                                  .mean = mean_on.view(),
                                  .rstd = rstd_on.view(),
                                  .epsilon = kEpsilon};
  CudaContext& context = *gpu().context;
  examples::residual_norm(context, on);
  examples::residual_norm_gradient(
      context, on, dy_on.view(),
      {.dx = dx_on.view(), .dgamma = dgamma_on.view(), .dbeta = dbeta_on.view()});

  HostTensor<double> sum = wide(x), gamma_at = wide(gamma), beta_at = wide(beta), dy_at = wide(dy);
  for (size_t i = 0; i < sum.values.size(); ++i) {
    sum.values[i] += static_cast<double>(residual.values[i]);
  }
  HostTensor<double> y_at = wide(garbage), dx_at = y_at, mean_at({rows}), rstd_at({rows});
  HostTensor<double> dgamma_at({columns}), dbeta_at({columns});
  cpu().run(LayerNormFwd{.x = sum.view(),
                         .gamma = gamma_at.view(),
                         .beta = beta_at.view(),
                         .y = y_at.view(),
                         .mean = mean_at.view(),
                         .rstd = rstd_at.view(),
                         .epsilon = kEpsilon});
  // As in generic_layer_norm_test.cpp; the sum adds one rounding of numbers up to 4.
  const double unit = rounding(DType::kF32);
  const double chain = tolerance::device_row_statistics(unit, false, columns) + 4 * unit;
  expect_near(y_on.numbers(), y_at.values, rounding(DType::kF16) + 18 * chain, "y " + what);
  expect_near(mean_on.numbers(), mean_at.values, chain, "mean " + what);
  expect_near(rstd_on.numbers(), rstd_at.values, chain, "rstd " + what);
  mean_at.values = mean_on.numbers();
  rstd_at.values = rstd_on.numbers();
  cpu().run(LayerNormBwd{.dy = dy_at.view(),
                         .x = sum.view(),
                         .mean = mean_at.view(),
                         .rstd = rstd_at.view(),
                         .gamma = gamma_at.view(),
                         .dx = dx_at.view(),
                         .dgamma = dgamma_at.view(),
                         .dbeta = dbeta_at.view()});
  expect_near(dx_on.numbers(), dx_at.values, rounding(DType::kBF16) + 10 * 16 * chain,
              "dx " + what);
  const double summed = 8 * std::sqrt(1.0 + static_cast<double>(rows)) * (10 * chain + 6 * unit);
  expect_near(dgamma_on.numbers(), dgamma_at.values, summed, "dgamma " + what);
  expect_near(dbeta_on.numbers(), dbeta_at.values, summed, "dbeta " + what);
}

/// A permutation.
HostTensor<int64_t> other_rows(int64_t rows) {
  HostTensor<int64_t> index({rows});
  for (int64_t r = 0; r < rows; ++r) index[r] = (2 * rows - 1 - r - rows / 3) % rows;
  return index;
}

/// Row r of the result is row index[r] of `from`.
HostTensor<double> gathered(const HostTensor<double>& from, const HostTensor<int64_t>& index) {
  HostTensor<double> rows = from;
  const int64_t columns = from.extents[1];
  for (int64_t i = 0; i < rows.elements(); ++i) {
    rows[i] = from[index[i / columns] * columns + i % columns];
  }
  return rows;
}

void expect_gathered_log_softmax_of_the_cpu(int64_t rows, int64_t columns, int64_t offset) {
  const std::string what = concat("[", rows, ",", columns, "] offset ", offset);
  const HostTensor<float> x = rounded_to(DType::kF16, random_tensor({rows, columns}, 1));
  const HostTensor<float> dy = rounded_to(DType::kF16, random_tensor({rows, columns}, 2));
  HostTensor<int64_t> index = other_rows(rows);
  const HostTensor<float> garbage = garbage_tensor({rows, columns});
  const DeviceTensor x_on(gpu(), DType::kF16, x, offset), dy_on(gpu(), DType::kF16, dy, offset);
  const DeviceTensor y_on(gpu(), DType::kF32, garbage, offset);
  const DeviceTensor dx_on(gpu(), DType::kF32, garbage, offset), index_on(gpu(), index);
  CudaContext& context = *gpu().context;
  gathered_log_softmax(context, x_on.view(), index_on.view(), y_on.view());

  HostTensor<double> x_at = gathered(wide(x), index), dy_at = gathered(wide(dy), index);
  HostTensor<double> y_at = wide(garbage), dx_at = y_at;
  cpu().run(SoftmaxFwd{.x = x_at.view(),
                       .bias = View(),
                       .mask = View(),
                       .y = y_at.view(),
                       .dropped = View(),
                       .kept_mask = View(),
                       .kind = SoftmaxKind::kLogSoftmax});
  const double tolerance =
      tolerance::device_softmax(rounding(DType::kF32), rounding(DType::kF32), columns);
  expect_near(y_on.numbers(), y_at.values, tolerance, "y " + what);
  const DeviceTensor widened_on(gpu(), DType::kF32, garbage, offset);
  gathered_log_softmax(context, x_on.view(), View(), widened_on.view());
  HostTensor<double> widened({rows, columns});
  widened.values = widened_on.numbers();
  expect_near(gathered(widened, index).values, y_at.values, tolerance, "widened y " + what);

  const HostTensor<float> y = rounded_to(DType::kBF16, y_on.floats());
  const DeviceTensor rounded_y_on(gpu(), DType::kBF16, y, offset);
  gathered_log_softmax_gradient(context, dy_on.view(), index_on.view(), rounded_y_on.view(),
                                dx_on.view());
  y_at = wide(y);
  cpu().run(SoftmaxBwd{.dy = dy_at.view(),
                       .y = y_at.view(),
                       .kept_mask = View(),
                       .dx = dx_at.view(),
                       .kind = SoftmaxKind::kLogSoftmax,
                       .scale = 2.0f});
  // As in softmax_test.cpp, twice.
  expect_near(dx_on.numbers(), dx_at.values, 8 * tolerance, "dx " + what);
}

/// With a mask, or with rows of x from elsewhere; results to other rows.
void expect_moved_norm_of_the_cpu(DType io, bool has_mask, int64_t rows, int64_t columns,
                                  int64_t offset) {
  const std::string what = concat(name(io), has_mask ? " masked" : " gathered", " [", rows, ",",
                                  columns, "] offset ", offset);
  const HostTensor<float> x = rounded_to(io, random_tensor({rows, columns}, 1));
  const HostTensor<float> dy = rounded_to(io, random_tensor({rows, columns}, 2));
  const HostTensor<float> gamma = rounded_to(io, random_tensor({columns}, 3));
  const HostTensor<float> beta = rounded_to(io, random_tensor({columns}, 4));
  HostTensor<uint8_t> mask({columns});
  for (int64_t i = 0; i < columns; ++i) mask[i] = i % 5 != 2 ? 1 : 0;
  HostTensor<int64_t> index = other_rows(rows);
  const HostTensor<float> garbage = garbage_tensor({rows, columns});
  const DeviceTensor x_on(gpu(), io, x, offset), dy_on(gpu(), io, dy, offset);
  const DeviceTensor y_on(gpu(), io, garbage, offset), dx_on(gpu(), io, garbage, offset);
  const DeviceTensor gamma_on(gpu(), io, gamma), beta_on(gpu(), io, beta);
  const DeviceTensor mask_on(gpu(), mask), index_on(gpu(), index);
  const DeviceTensor mean_on(gpu(), DType::kF32, garbage_tensor({rows}));
  const DeviceTensor rstd_on(gpu(), DType::kF32, garbage_tensor({rows}));
  const DeviceTensor dgamma_on(gpu(), io, garbage_tensor({columns}));
  const DeviceTensor dbeta_on(gpu(), io, garbage_tensor({columns}));
  const MovedNorm on{.x = x_on.view(),
                     .mask = has_mask ? mask_on.view() : View(),
                     .index = index_on.view(),
                     .gamma = gamma_on.view(),
                     .beta = beta_on.view(),
                     .y = y_on.view(),
                     .mean = mean_on.view(),
                     .rstd = rstd_on.view(),
                     .epsilon = kEpsilon};
  CudaContext& context = *gpu().context;
  moved_norm(context, on);
  moved_norm_gradient(context, on,
                      {.dy = dy_on.view(),
                       .dx = dx_on.view(),
                       .dgamma = dgamma_on.view(),
                       .dbeta = dbeta_on.view()});

  HostTensor<double> z = has_mask ? wide(x) : gathered(wide(x), index);
  for (int64_t i = 0; has_mask && i < z.elements(); ++i) {
    if (mask[i % columns] == 0) z[i] = 0;
  }
  HostTensor<double> gamma_at = wide(gamma), beta_at = wide(beta), dy_at = wide(dy);
  for (double& value : dy_at.values) value *= 2;
  HostTensor<double> y_at = wide(garbage), dx_at = y_at, mean_at({rows}), rstd_at({rows});
  HostTensor<double> dgamma_at({columns}), dbeta_at({columns});
  cpu().run(LayerNormFwd{.x = z.view(),
                         .gamma = gamma_at.view(),
                         .beta = beta_at.view(),
                         .y = y_at.view(),
                         .mean = mean_at.view(),
                         .rstd = rstd_at.view(),
                         .epsilon = kEpsilon});
  // As in generic_layer_norm_test.cpp; dy is twice as large.
  const auto rows_of = [&](const DeviceTensor& on_gpu) {
    HostTensor<double> values({rows, columns});
    values.values = on_gpu.numbers();
    return gathered(values, index).values;
  };
  const double unit = rounding(DType::kF32);
  const double chain = tolerance::device_row_statistics(unit, false, columns);
  expect_near(rows_of(y_on), y_at.values, rounding(io) + 18 * chain, "y " + what);
  expect_near(mean_on.numbers(), mean_at.values, chain, "mean " + what);
  expect_near(rstd_on.numbers(), rstd_at.values, chain, "rstd " + what);
  mean_at.values = mean_on.numbers();
  rstd_at.values = rstd_on.numbers();
  cpu().run(LayerNormBwd{.dy = dy_at.view(),
                         .x = z.view(),
                         .mean = mean_at.view(),
                         .rstd = rstd_at.view(),
                         .gamma = gamma_at.view(),
                         .dx = dx_at.view(),
                         .dgamma = dgamma_at.view(),
                         .dbeta = dbeta_at.view()});
  expect_near(rows_of(dx_on), dx_at.values, rounding(io) + 2 * 10 * 16 * chain, "dx " + what);
  const double count = 1.0 + static_cast<double>(rows);
  const double summed = rounding(io) + 2 * 8 * std::sqrt(count) * (10 * chain + 6 * unit);
  expect_near(dgamma_on.numbers(), dgamma_at.values, summed, "dgamma " + what);
  expect_near(dbeta_on.numbers(), dbeta_at.values, summed, "dbeta " + what);
}

TEST(GpuFunctors, MaskedSoftmaxMatchesTheCpu) {
  for (const int64_t columns : kWidths) {
    for_rows_and_offsets(columns, [&](int64_t rows, int64_t offset) {
      expect_softmax_of_the_cpu(rows, columns, offset);
    });
  }
}

TEST(GpuFunctors, GatheredLogSoftmaxMatchesTheCpu) {
  for (const int64_t columns : kWidths) {
    for_rows_and_offsets(columns, [&](int64_t rows, int64_t offset) {
      expect_gathered_log_softmax_of_the_cpu(rows, columns, offset);
    });
  }
}

TEST(GpuFunctors, ResidualNormMatchesTheCpu) {
  for (const int64_t columns : kWidths) {
    for_rows_and_offsets(columns, [&](int64_t rows, int64_t offset) {
      expect_norm_of_the_cpu(rows, columns, offset);
    });
  }
}

TEST(GpuFunctors, MovedNormMatchesTheCpu) {
  for (const DType io : {DType::kF16, DType::kF32}) {
    for (const bool has_mask : {true, false}) {
      for (const int64_t columns : kWidths) {
        for_rows_and_offsets(columns, [&](int64_t rows, int64_t offset) {
          expect_moved_norm_of_the_cpu(io, has_mask, rows, columns, offset);
        });
      }
    }
  }
}

/// More rows than persistent grids and their rings take at once.
TEST(GpuFunctors, ManyRowsOfNormMatchTheCpu) {
  expect_norm_of_the_cpu(450, 16'392, 0);
  expect_moved_norm_of_the_cpu(DType::kF16, true, 450, 16'392, 0);
  for (const int64_t columns : {1024, 1032}) {
    expect_norm_of_the_cpu(4'500, columns, 0);
    expect_moved_norm_of_the_cpu(DType::kF16, true, 4'500, columns, 0);
  }
}

class GpuFunctorsForOthers : public NeedsSm90a {};

TEST_F(GpuFunctorsForOthers, AreRefused) {
  const HostTensor<float> x = random_tensor({2, 8200}, 1);
  const DeviceTensor x_on(gpu(), DType::kF16, x), y_on(gpu(), DType::kF16, x);
  EXPECT_THAT(error_of([&] { negated_softmax(*gpu().context, x_on.view(), y_on.view()); },
                       ExitCode::kEnvironment),
              HasSubstr("functors have portable code for "));
}

}  // namespace
}  // namespace bertha::testing

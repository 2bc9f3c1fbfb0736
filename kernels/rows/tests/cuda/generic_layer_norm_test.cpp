#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/tests/tolerance.h"
#include "kernels/rows/ops/layer_norm.h"
#include "kernels/rows/tests/cuda/row_gpu.h"
#include "kernels/rows/tests/expect_near.h"

// LayerNorm at any width, type and address, with and without a residual and parameters.

namespace bertha::testing {
namespace {

constexpr double kEpsilon = 0.1;  // which no f32 holds

struct Variant {
  bool has_parameters = true;
  bool has_residual = false;
  float offset = 0.0f;  // of every element
  bool has_beta = true;
  int64_t row_place = 0;  // elements from an aligned address to the first row, and
  int64_t parameter_place = 0;
  bool sums_in_place = false;  // in x's memory
  float outlier = 0.0f;        // added to the first element of each row
};

constexpr Variant kVariants[] = {{},
                                 {.has_parameters = false},
                                 {.has_residual = true},
                                 {.has_parameters = false, .has_residual = true},
                                 {.has_residual = true, .sums_in_place = true},
                                 {.offset = 10000.0f}};

HostTensor<double> wide(const HostTensor<float>& values) {
  HostTensor<double> same;
  same.extents = values.extents;
  same.values = values.doubles();
  return same;
}

/// With the CPU backend in f64 on the same rounded inputs.
void expect_same_as_cpu(DType io, int64_t rows, int64_t columns, const Variant& variant) {
  const std::string what =
      concat(name(io), " [", rows, ",", columns, "] parameters ", variant.has_parameters,
             " residual ", variant.has_residual, " offset ", variant.offset, " beta ",
             variant.has_beta, " places ", variant.row_place, ", ", variant.parameter_place,
             " in place ", variant.sums_in_place, " outlier ", variant.outlier);
  const DType statistic = io == DType::kF64 ? DType::kF64 : DType::kF32;
  HostTensor<float> x_in = random_tensor({rows, columns}, 1);
  for (float& value : x_in.values) value += variant.offset;
  for (int64_t row = 0; row < rows; ++row) x_in[row * columns] += variant.outlier;
  const HostTensor<float> x = rounded_to(io, x_in);
  const HostTensor<float> residual = rounded_to(io, random_tensor({rows, columns}, 2));
  const HostTensor<float> gamma = rounded_to(io, random_tensor({columns}, 3));
  const HostTensor<float> beta = rounded_to(io, random_tensor({columns}, 4));
  const HostTensor<float> dy = rounded_to(io, random_tensor({rows, columns}, 5));
  const HostTensor<float> garbage = garbage_tensor({rows, columns});

  const auto rows_on_gpu = [&](const HostTensor<float>& values) {
    return DeviceTensor(gpu(), io, values, variant.row_place);
  };
  const auto parameters_on_gpu = [&](const HostTensor<float>& values) {
    return DeviceTensor(gpu(), io, values, variant.parameter_place);
  };
  const DeviceTensor x_on = rows_on_gpu(x), residual_on = rows_on_gpu(residual);
  const DeviceTensor gamma_on = parameters_on_gpu(gamma), beta_on = parameters_on_gpu(beta);
  const DeviceTensor y_on = rows_on_gpu(garbage), sum_apart = rows_on_gpu(garbage);
  const DeviceTensor& sum_on = variant.sums_in_place ? x_on : sum_apart;
  const DeviceTensor mean_on(gpu(), statistic, garbage_tensor({rows}));
  const DeviceTensor rstd_on(gpu(), statistic, garbage_tensor({rows}));
  const bool has_beta = variant.has_parameters && variant.has_beta;
  LayerNormFwd forward{.x = x_on.view(),
                       .gamma = variant.has_parameters ? gamma_on.view() : View(),
                       .beta = has_beta ? beta_on.view() : View(),
                       .y = y_on.view(),
                       .mean = mean_on.view(),
                       .rstd = rstd_on.view(),
                       .epsilon = kEpsilon,
                       .residual = variant.has_residual ? residual_on.view() : View(),
                       .sum = variant.has_residual ? sum_on.view() : View()};
  gpu().run(forward);
  if (!variant.sums_in_place) {  // the same y where nobody wants the statistics
    const DeviceTensor alone = rows_on_gpu(garbage);
    forward.y = alone.view();
    forward.mean = forward.rstd = View();
    gpu().run(forward);
    EXPECT_EQ(alone.numbers(), y_on.numbers()) << what;
  }

  // The reference normalizes the sum as it was stored.
  HostTensor<double> x_at = wide(x), gamma_at = wide(gamma), beta_at = wide(beta);
  HostTensor<double> dy_at = wide(dy), y_at = wide(garbage), dx_at = y_at;
  HostTensor<double> mean_at({rows}), rstd_at({rows}), dgamma_at({columns}), dbeta_at({columns});
  const double unit = rounding(statistic);
  if (variant.has_residual) {
    std::vector<double> want(x_at.values);
    for (size_t i = 0; i < want.size(); ++i) want[i] += static_cast<double>(residual.values[i]);
    x_at.values = sum_on.numbers();
    expect_near(x_at.values, want, rounding(io) + unit, "sum " + what);
  }
  cpu().run(LayerNormFwd{.x = x_at.view(),
                         .gamma = variant.has_parameters ? gamma_at.view() : View(),
                         .beta = has_beta ? beta_at.view() : View(),
                         .y = y_at.view(),
                         .mean = mean_at.view(),
                         .rstd = rstd_at.view(),
                         .epsilon = kEpsilon});
  // Largest terms of y: 2 * 4 * 2 + 2. Where the mean is 1e4, its second part keeps what matters.
  const double chain = tolerance::device_row_statistics(unit, io == DType::kF64, columns);
  expect_near(y_on.numbers(), y_at.values, rounding(io) + 18 * chain, "y " + what);
  expect_near(mean_on.numbers(), mean_at.values, chain, "mean " + what);
  expect_near(rstd_on.numbers(), rstd_at.values, chain, "rstd " + what);

  const HostTensor<float> before = rounded_to(io, random_tensor({columns}, 6));
  const DeviceTensor dx_on = rows_on_gpu(dy);  // in dy's memory
  const DeviceTensor dgamma_on = parameters_on_gpu(before), dbeta_on = parameters_on_gpu(before);
  gpu().run(LayerNormBwd{.dy = dx_on.view(),
                         .x = variant.has_residual ? sum_on.view() : x_on.view(),
                         .mean = mean_on.view(),
                         .rstd = rstd_on.view(),
                         .gamma = variant.has_parameters ? gamma_on.view() : View(),
                         .dx = dx_on.view(),
                         .dgamma = variant.has_parameters ? dgamma_on.view() : View(),
                         .dbeta = variant.has_parameters ? dbeta_on.view() : View(),
                         .accumulate = Accumulate::kYes});
  mean_at.values = mean_on.numbers();
  rstd_at.values = rstd_on.numbers();
  dgamma_at.values = dbeta_at.values = before.doubles();
  cpu().run(LayerNormBwd{.dy = dy_at.view(),
                         .x = x_at.view(),
                         .mean = mean_at.view(),
                         .rstd = rstd_at.view(),
                         .gamma = variant.has_parameters ? gamma_at.view() : View(),
                         .dx = dx_at.view(),
                         .dgamma = variant.has_parameters ? dgamma_at.view() : View(),
                         .dbeta = variant.has_parameters ? dbeta_at.view() : View(),
                         .accumulate = Accumulate::kYes});
  expect_near(dx_on.numbers(), dx_at.values, rounding(io) + 10 * 16 * chain, "dx " + what);
  if (!variant.has_parameters) return;
  // Terms of up to 8, each with the error of a gradient's chain: independent errors of the rows.
  const double count = 1.0 + static_cast<double>(rows);
  const double summed = rounding(io) + 8 * std::sqrt(count) * (10 * chain + 6 * unit);
  expect_near(dgamma_on.numbers(), dgamma_at.values, summed, "dgamma " + what);
  expect_near(dbeta_on.numbers(), dbeta_at.values, summed, "dbeta " + what);
}

TEST(GpuGenericLayerNorm, SmallShapesMatchTheCpu) {
  for (const DType io : kFloatingTypes) {
    for (const int64_t columns : {1, 2, 8, 31, 33, 40, 100, 128, 256, 257, 320, 513, 1000}) {
      for (const int64_t rows : {0, 1, 7, 33}) {
        for (const Variant& variant : kVariants) expect_same_as_cpu(io, rows, columns, variant);
      }
    }
  }
}

/// A few more rows than a block has, at widths that are no multiple of 16 bytes.
TEST(GpuGenericLayerNorm, MisalignedNarrowRowsMatchTheCpu) {
  for (const DType io : {DType::kF16, DType::kBF16}) {
    for (int64_t first = 17; first < 1088; first += first < 129 ? 8 : 32) {
      for (const int64_t columns : {first, first + 5, first + (first < 129 ? 6 : 30)}) {
        expect_same_as_cpu(io, 45, columns, {});
        expect_same_as_cpu(io, 45, columns, {.offset = 10000.0f});
        expect_same_as_cpu(io, 3, columns, {.has_parameters = false});
        expect_same_as_cpu(io, 9, columns, {.has_beta = false});
      }
    }
  }
}

TEST(GpuGenericLayerNorm, WideRowsMatchTheCpu) {
  for (const DType io : kFloatingTypes) {
    for (const int64_t columns : {1024, 1025, 1026, 1032, 2056, 4096, 4104, 5000, 5001, 8192, 8200,
                                  16384, 16392, 30522, 32768, 32776, 130001}) {
      for (const Variant& variant : kVariants) expect_same_as_cpu(io, 5, columns, variant);
    }
  }
  for (const DType io : {DType::kF16, DType::kBF16}) {
    // On both sides of widths at which other kernels begin.
    for (const int64_t columns : {1088,   1089,   1090,   1536,   1544,   4088,   4096,   5002,
                                  8190,   8193,   8194,   9210,   12345,  16386,  24584,  32768,
                                  33'784, 33'785, 33'786, 33'792, 33'800, 65'530, 65'536, 65'544}) {
      for (const Variant& variant : kVariants) expect_same_as_cpu(io, 5, columns, variant);
    }
  }
}

/// Kernels take their sums around the first element, or around the mean of some.
TEST(GpuGenericLayerNorm, AnOutlierInFrontCostsF32AndF64Nothing) {
  for (const DType io : {DType::kF64, DType::kF32}) {
    for (const int64_t columns :
         {2, 8, 33, 64, 256, 512, 1000, 1024, 1032, 1536, 4096, 8192, 8200, 30522}) {
      expect_same_as_cpu(io, 5, columns, {.outlier = 100.0f});
    }
  }
}

/// Rows and parameters that begin anywhere: together, and each alone.
TEST(GpuGenericLayerNorm, AddressesNeedNoAlignment) {
  for (const DType io : kFloatingTypes) {
    for (const int64_t columns :
         {8, 32, 100, 256, 512, 513, 1024, 1090, 4096, 8192, 8198, 8200, 16384}) {
      for (const int64_t place : {1, 2, 4}) {
        for (const bool has_residual : {false, true}) {
          const auto check = [&](int64_t row_place, int64_t parameter_place) {
            expect_same_as_cpu(io, 5, columns,
                               {.has_residual = has_residual,
                                .row_place = row_place,
                                .parameter_place = parameter_place});
          };
          check(place, place);
          check(place, 0);
          check(0, place);
        }
      }
    }
  }
}

/// Rows that begin within a 16-byte word are read with elements of their neighbours.
TEST(GpuGenericLayerNorm, NanStaysInItsRow) {
  for (const DType io : {DType::kF16, DType::kBF16}) {
    for (const int64_t columns : {9, 33, 100, 257, 513, 1001, 1025, 5001, 16'385, 30'522}) {
      HostTensor<float> values = random_tensor({3, columns}, 1);
      for (int64_t i = columns; i < 2 * columns; ++i) values[i] = std::nanf("");
      const DeviceTensor x(gpu(), io, values), dy(gpu(), io, values);
      const DeviceTensor y(gpu(), io, garbage_tensor({3, columns}));
      const DeviceTensor dx(gpu(), io, garbage_tensor({3, columns}));
      const DeviceTensor mean(gpu(), DType::kF32, garbage_tensor({3}));
      const DeviceTensor rstd(gpu(), DType::kF32, garbage_tensor({3}));
      gpu().run(LayerNormFwd{.x = x.view(),
                             .gamma = View(),
                             .beta = View(),
                             .y = y.view(),
                             .mean = mean.view(),
                             .rstd = rstd.view()});
      gpu().run(LayerNormBwd{.dy = dy.view(),
                             .x = x.view(),
                             .mean = mean.view(),
                             .rstd = rstd.view(),
                             .gamma = View(),
                             .dx = dx.view(),
                             .dgamma = View(),
                             .dbeta = View()});
      for (const std::vector<double>& results : {y.numbers(), dx.numbers()}) {
        for (size_t i = 0; i < results.size(); ++i) {
          const bool is_in_row = i / static_cast<size_t>(columns) == 1;
          ASSERT_EQ(std::isnan(results[i]), is_in_row) << name(io) << " " << columns << " at " << i;
        }
      }
    }
  }
}

/// So many rows that every block of a persistent grid takes ten and more, and each stage of a ring
/// is filled again; of narrow ones, several blocks and a part of one.
TEST(GpuGenericLayerNorm, ManyRowsMatchTheCpu) {
  for (const DType io : {DType::kF16, DType::kBF16}) {
    for (const int64_t columns : {8, 24, 32, 56, 64, 72}) {
      expect_same_as_cpu(io, 1'001, columns, kVariants[0]);
    }
    expect_same_as_cpu(io, 20'001, 513, kVariants[0]);
    expect_same_as_cpu(io, 20'001, 771, kVariants[0]);
    expect_same_as_cpu(io, 10'001, 1001, kVariants[0]);
    expect_same_as_cpu(io, 10'001, 1026, kVariants[0]);
    expect_same_as_cpu(io, 3'001, 5000, kVariants[0]);
    expect_same_as_cpu(io, 1'001, 1024, {.has_residual = true, .sums_in_place = true});
    expect_same_as_cpu(io, 801, 8200, {.has_residual = true, .sums_in_place = true});
    expect_same_as_cpu(io, 801, 8200, kVariants[0]);
    expect_same_as_cpu(io, 801, 10'002, kVariants[0]);
    expect_same_as_cpu(io, 401, 16'392, kVariants[0]);
    expect_same_as_cpu(io, 2'001, 8'191, kVariants[0]);
    expect_same_as_cpu(io, 801, 12'345, kVariants[0]);
    expect_same_as_cpu(io, 801, 16'385, kVariants[0]);
    expect_same_as_cpu(io, 801, 30'522, kVariants[0]);
  }
  for (const int64_t columns : {513, 1024, 4104, 16'392}) {
    expect_same_as_cpu(DType::kF32, 801, columns, kVariants[0]);
  }
}

}  // namespace
}  // namespace bertha::testing

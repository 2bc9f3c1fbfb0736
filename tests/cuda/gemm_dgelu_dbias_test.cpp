#include "kernels/ops/linear.h"
#include "tests/cuda/data_gradient_case.h"
#include "tests/cuda/gelu_gemms.h"

namespace bertha::testing {
namespace {

// Ragged and whole tiles of 256 rows and 128 columns.
constexpr Shape kGradientShapes[] = {{1, 256, 64},     {7, 512, 256},  {33, 384, 320},
                                     {255, 256, 128},  {256, 512, 64}, {257, 768, 192},
                                     {511, 256, 1024}, {2500, 256, 64}};

// 256 columns are two tiles, so with few SMs 3 row tiles abreast: no round of 768 rows, one or
// more, and rows behind them.
constexpr Shape kRounds[] = {{64, 256, 192},  {577, 256, 64},   {769, 256, 1024}, {1152, 256, 320},
                             {1345, 256, 64}, {1950, 256, 128}, {6900, 256, 64}};

using CudaGemmDgeluDbias = NeedsSm90a;

TEST_F(CudaGemmDgeluDbias, MatchesTheReference) {
  for (const int sm_count : {kAllSms, kFewSms}) {
    for (const Shape& shape : kGradientShapes) {
      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        const Case c(shape, dtype);
        for (const Activation gelu : kGelus) {
          expect_data_gradient(c, gelu, own_gelu(sm_count));
          expect_bias_below(c, gelu, own_gelu(sm_count));
        }
      }
    }
  }
}

TEST_F(CudaGemmDgeluDbias, RowsBehindWholeRoundsMatchTheReference) {
  for (const Shape& shape : kRounds) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const Case c(shape, dtype);
      expect_data_gradient(c, Activation::kGeluTanh, own_gelu(kFewSms));
      expect_bias_below(c, Activation::kGeluTanh, own_gelu(kFewSms));
    }
  }
}

TEST_F(CudaGemmDgeluDbias, EveryNumberHasItsDerivative) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Case c({1, 65536, 64}, dtype);
    c.dy = HostTensor<float>({1, 64});
    c.dy[0] = 1.0f;
    std::ranges::fill(c.weight.values, 1.0f);
    HostTensor<float> saved({1, 65536});
    saved.values = every_number(dtype).values;
    for (const Activation gelu : kGelus) {
      const HostTensor<float> got =
          data_gradient(own_gelu(), c, dtype, saved, c.inputs(), gelu, Accumulate::kNo);
      const double fit = gelu == Activation::kGelu ? tolerance::kGeluFitDerivative : 0.0;
      HostTensor<float> want({1, 65536});
      std::vector<double> bound;
      for (int64_t i = 0; i < want.elements(); ++i) {
        const double exact = exact_gelu_derivative(static_cast<double>(saved[i]), gelu);
        want[i] = static_cast<float>(exact);
        // The derivative is kept in f16.
        bound.push_back(fit + 4 * tolerance::kGeluInstruction +
                        (rounding(DType::kF16) + rounding(dtype)) * std::abs(exact));
      }
      expect_within(got, want, bound, concat(name(dtype), " ", static_cast<int>(gelu)));
    }
  }
}

TEST_F(CudaGemmDgeluDbias, DerivativesOfLargeInputsAreOneAndZero) {
  // At any size of the pre-activation: dx is the product, or 0.
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Case c({300, 256, 64}, dtype);
    HostTensor<float> saved = random_tensor({300, 256}, 5);
    const float largest = dtype == DType::kF16 ? 6e4f : 3e38f;
    for (int64_t i = 0; i < saved.elements(); ++i) {
      const float size = i % 3 == 0 ? 11.0f : i % 3 == 1 ? 1000.0f : largest;
      saved.values[static_cast<size_t>(i)] = saved[i] < 0.0f ? -size : size;
    }
    saved = rounded_to(dtype, saved);
    const HostTensor<float> plain =
        data_gradient(own_gelu(), c, dtype, saved, c.inputs(), Activation::kNone, Accumulate::kNo);
    for (const Activation gelu : kGelus) {
      const HostTensor<float> got =
          data_gradient(own_gelu(), c, dtype, saved, c.inputs(), gelu, Accumulate::kNo);
      std::vector<double> bound;
      HostTensor<float> want({300, 256}, 0.0f);
      for (int64_t i = 0; i < got.elements(); ++i) {
        want[i] = saved[i] > 0.0f ? plain[i] : 0.0f;
        // Sums of another order, each rounded once.
        bound.push_back(saved[i] > 0.0f
                            ? Case::product_error(64, 1.0) + 2 * rounding(dtype) * std::abs(want[i])
                            : 0.0);
      }
      expect_within(got, want, bound, concat("far ", name(dtype)));
    }
  }
}

TEST_F(CudaGemmDgeluDbias, IsTheSameOnAnyNumberOfSms) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Case c({2500, 512, 256}, dtype);
    const HostTensor<float> saved = rounded_to(dtype, scaled(random_tensor({2500, 512}, 5), 3.0f));
    const auto backward = [&](int sm_count) {
      return data_and_bias_gradient(own_gelu(sm_count), c, saved, garbage_tensor({512}),
                                    Activation::kGeluTanh, Accumulate::kNo);
    };
    const DataAndBias all = backward(kAllSms);
    const DataAndBias few = backward(kFewSms);
    EXPECT_EQ(few.dx.values, all.dx.values);
    for (int run = 0; run < 3; ++run) {  // the sums' order depends on their number
      EXPECT_EQ(backward(kAllSms).dx.values, all.dx.values);
      EXPECT_EQ(backward(kAllSms).dbias.values, all.dbias.values);
      EXPECT_EQ(backward(kFewSms).dbias.values, few.dbias.values);
    }
  }
}

TEST_F(CudaGemmDgeluDbias, AutoTakesItFromItsRoundsOn) {
  // 128 columns are one tile, so 6 row tiles abreast, and 1 round of these.
  for (const int64_t rows : {5 * 256, 5 * 256 + 1}) {
    const Case c({rows, 128, 64}, DType::kBF16);
    const HostTensor<float> saved = rounded_to(c.dtype, random_tensor({rows, 128}, 5));
    const auto run = [&](GeluGemms choice) {
      return data_and_bias_gradient(gelu_gpu(choice, kFewSms), c, saved, garbage_tensor({128}),
                                    Activation::kGeluTanh, Accumulate::kNo);
    };
    const DataAndBias want = run(rows == 5 * 256 ? GeluGemms::kLibrary : GeluGemms::kOwn);
    EXPECT_EQ(run(GeluGemms::kAuto).dx.values, want.dx.values) << rows;
  }
}

TEST_F(CudaGemmDgeluDbias, WhatItCannotServeIsRefused) {
  const auto run = [](const Shape& shape, DType dtype) {
    return [=] {
      const Case c(shape, dtype);
      data_gradient(own_gelu(), c, dtype, c.x, c.inputs(), Activation::kGelu, Accumulate::kNo);
    };
  };
  expect_refused(run({129, 136, 64}, DType::kBF16), "136 columns");
  expect_refused(run({129, 256, 72}, DType::kBF16), "72 indices");
  expect_refused(run({129, 256, 64}, DType::kF32), "f32");
  // Gradients without a GELU are the library's.
  expect_data_gradient(Case({129, 136, 72}, DType::kBF16), Activation::kTanh, own_gelu());
}

}  // namespace
}  // namespace bertha::testing

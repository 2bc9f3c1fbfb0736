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
        expect_multiplied_gradient(Case(shape, dtype), own_gelu(sm_count));
      }
    }
  }
}

TEST_F(CudaGemmDgeluDbias, RowsBehindWholeRoundsMatchTheReference) {
  for (const Shape& shape : kRounds) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      expect_multiplied_gradient(Case(shape, dtype), own_gelu(kFewSms));
    }
  }
}

TEST_F(CudaGemmDgeluDbias, EveryByteHasItsDerivative) {
  // Products of 1, so that dx is the derivative; every byte in every row.
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Case c({300, 256, 64}, dtype);
    std::ranges::fill(c.dy.values, 0.0f);
    for (int64_t t = 0; t < 300; ++t) c.dy[t * 64] = 1.0f;
    std::ranges::fill(c.weight.values, 1.0f);
    for (int first = 0; first < 256; first += 17) {
      HostTensor<uint8_t> bytes = derivative_bytes(c);
      for (uint8_t& byte : bytes.values) byte = static_cast<uint8_t>(byte + first);
      const HostTensor<float> got =
          multiplied_gradient(own_gelu(), c, dtype, bytes, garbage_tensor({256})).dx;
      HostTensor<float> want({300, 256});
      std::vector<double> bound;
      for (int64_t i = 0; i < want.elements(); ++i) {
        const double exact = derivative_of(bytes[i]);
        want[i] = static_cast<float>(exact);
        const bool is_exact = bytes[i] == kDerivativeZero || bytes[i] == kDerivativeZero + 200;
        bound.push_back(is_exact ? 0.0
                                 : (rounding(DType::kF16) + rounding(dtype)) * std::abs(exact) +
                                       2e-6);  // of the step in two parts
      }
      expect_within(got, want, bound, concat(name(dtype), " from ", first));
    }
  }
}

TEST_F(CudaGemmDgeluDbias, IsTheSameOnAnyNumberOfSms) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Case c({2500, 512, 256}, dtype);
    const auto backward = [&](int sm_count) {
      return multiplied_gradient(own_gelu(sm_count), c, dtype, derivative_bytes(c),
                                 garbage_tensor({512}));
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
    const auto run = [&](GeluGemms choice) {
      return multiplied_gradient(gelu_gpu(choice, kFewSms), c, c.dtype, derivative_bytes(c),
                                 garbage_tensor({128}));
    };
    const DataAndBias want = run(rows == 5 * 256 ? GeluGemms::kLibrary : GeluGemms::kOwn);
    EXPECT_EQ(run(GeluGemms::kAuto).dx.values, want.dx.values) << rows;
  }
}

TEST_F(CudaGemmDgeluDbias, WhatItCannotServeIsRefused) {
  const auto run = [](const Shape& shape, DType dtype) {
    return [=] {
      const Case c(shape, dtype);
      multiplied_gradient(own_gelu(), c, dtype, derivative_bytes(c),
                          garbage_tensor({shape.inputs}));
    };
  };
  expect_refused(run({129, 136, 64}, DType::kBF16), "136 columns");
  expect_refused(run({129, 256, 72}, DType::kBF16), "72 indices");
  expect_refused(run({129, 256, 64}, DType::kF32), "f32");
  // Gradients without bytes are the library's.
  for (const Activation activation : {Activation::kTanh, Activation::kGelu}) {
    expect_data_gradient(Case({129, 136, 72}, DType::kBF16), activation, own_gelu());
  }
}

}  // namespace
}  // namespace bertha::testing

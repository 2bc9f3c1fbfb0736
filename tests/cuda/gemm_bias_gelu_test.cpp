#include "kernels/ops/linear.h"
#include "tests/cuda/gelu_gemms.h"

namespace bertha::testing {
namespace {

// Ragged and whole tiles of 128 rows and 256 columns.
constexpr Shape kGeluShapes[] = {{1, 64, 256},     {7, 256, 512},   {33, 128, 256},
                                 {127, 64, 256},   {128, 192, 768}, {129, 768, 256},
                                 {511, 1024, 512}, {2500, 64, 256}};

using CudaGemmBiasGelu = NeedsSm90a;

TEST_F(CudaGemmBiasGelu, MatchesTheReference) {
  for (const int sm_count : {kAllSms, kFewSms}) {
    for (const Shape& shape : kGeluShapes) {
      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        for (const Activation gelu : kGelus) {
          expect_forward_in_bytes(Case(shape, dtype), true, gelu, own_gelu(sm_count));
        }
      }
    }
  }
}

TEST_F(CudaGemmBiasGelu, EveryNumberHasItsGelu) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Case c({1, 64, 65536}, dtype);
    c.x = HostTensor<float>({1, 64});
    c.bias = every_number(dtype);  // and so z
    for (float& z : c.bias.values) {
      if (z > 65504.0f) z = 0.0f;  // y would be an infinity
    }
    for (const Activation gelu : kGelus) {
      const ForwardInBytes got = forward_in_bytes(own_gelu(), c, dtype, true, gelu);
      HostTensor<float> want({1, 65536}), derivative({1, 65536});
      std::vector<double> bound, derivative_bound;
      for (int64_t i = 0; i < want.elements(); ++i) {
        const auto z = static_cast<double>(c.bias[i]);
        // Beyond +-10 the results are z or 0, and 1 or 0, to the last bit.
        const bool is_far = std::abs(z) > 10.0;
        const double exact = is_far ? std::max(z, 0.0) : exact_gelu(z, gelu);
        want[i] = static_cast<float>(exact);
        derivative[i] =
            static_cast<float>(is_far ? (z > 0.0 ? 1.0 : 0.0) : exact_gelu_derivative(z, gelu));
        bound.push_back(is_far ? 0.0
                               : tolerance::kGeluF16 * std::max(1.0, std::abs(z)) +
                                     rounding(dtype) * std::abs(exact));
        derivative_bound.push_back(is_far ? 1e-6
                                          : tolerance::kGeluDerivativeF16 +
                                                0.5 * static_cast<double>(kDerivativeStep));
      }
      const std::string what = concat(name(dtype), " ", static_cast<int>(gelu));
      expect_within(got.y, want, bound, what);
      expect_within(got.derivatives(), derivative, derivative_bound, "derivative " + what);
    }
  }
}

TEST_F(CudaGemmBiasGelu, IsTheSameOnAnyNumberOfSms) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Case c({2500, 256, 512}, dtype);
    const auto run_on = [&](int sm_count) {
      return forward_in_bytes(own_gelu(sm_count), c, dtype, true, Activation::kGeluTanh);
    };
    const ForwardInBytes first = run_on(kAllSms);
    for (int run = 0; run < 3; ++run) {
      for (const int sm_count : {kAllSms, kFewSms}) {
        const ForwardInBytes again = run_on(sm_count);
        EXPECT_EQ(again.y.values, first.y.values);
        EXPECT_EQ(again.bytes.values, first.bytes.values);
      }
    }
  }
}

TEST_F(CudaGemmBiasGelu, AutoTakesItFromItsRoundsOn) {
  // 256 columns are one tile, so 6 row tiles abreast, and 1 round of these.
  for (const Activation gelu : kGelus) {
    const int64_t most = 5 * 128;  // of the library
    for (const int64_t rows : {most, most + 1}) {
      const Case c({rows, 64, 256}, DType::kBF16);
      const auto run = [&](GeluGemms choice) {
        return forward_in_bytes(gelu_gpu(choice, kFewSms), c, c.dtype, true, gelu);
      };
      const ForwardInBytes want = run(rows == most ? GeluGemms::kLibrary : GeluGemms::kOwn);
      EXPECT_EQ(run(GeluGemms::kAuto).y.values, want.y.values) << rows;
      EXPECT_EQ(run(GeluGemms::kAuto).bytes.values, want.bytes.values) << rows;
    }
  }
}

TEST_F(CudaGemmBiasGelu, WhatItCannotServeIsRefused) {
  const auto run = [](const Shape& shape, DType dtype, bool with_bias) {
    return [=] {
      forward_in_bytes(own_gelu(), Case(shape, dtype), dtype, with_bias, Activation::kGelu);
    };
  };
  const Shape whole{129, 64, 256};
  expect_refused(run({129, 64, 264}, DType::kBF16, true), "264 columns");
  expect_refused(run({129, 72, 256}, DType::kBF16, true), "72 indices");
  expect_refused(run(whole, DType::kBF16, false), "without a bias");
  expect_refused(run(whole, DType::kF32, true), "f32");
  // Products without a GELU, and those that store the pre-activation, are the library's.
  for (const Activation activation : {Activation::kTanh, Activation::kGelu}) {
    expect_forward(Case({129, 72, 264}, DType::kBF16), true, activation, own_gelu());
  }
}

}  // namespace
}  // namespace bertha::testing

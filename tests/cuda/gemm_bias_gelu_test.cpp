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
          expect_forward(Case(shape, dtype), true, gelu, own_gelu(sm_count));
        }
      }
    }
  }
}

TEST_F(CudaGemmBiasGelu, TakesGeluOfTheStoredPreActivation) {
  // At any size: beyond +-10 the result is z or 0 to the last bit.
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Case c({300, 64, 256}, dtype);
    c.bias = rounded_to(dtype, scaled(random_tensor({256}, 3), 100.0f));
    for (const Activation gelu : kGelus) {
      const Forward got = forward(own_gelu(), c, dtype, true, gelu);
      for (int64_t i = 0; i < got.z.elements(); ++i) {
        const float z = got.z[i];
        if (std::abs(z) < 10.0f) continue;
        ASSERT_EQ(got.y[i], z > 0.0f ? z : 0.0f) << name(dtype) << " " << i;
      }
    }
  }
}

TEST_F(CudaGemmBiasGelu, EveryNumberHasItsGelu) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Case c({1, 64, 65536}, dtype);
    c.x = HostTensor<float>({1, 64});
    c.bias = every_number(dtype);  // and so z
    for (const Activation gelu : kGelus) {
      const Forward got = forward(own_gelu(), c, dtype, true, gelu);
      EXPECT_EQ(got.z.values, c.bias.values);
      const double fit = gelu == Activation::kGelu ? tolerance::kGeluFit : 0.0;
      HostTensor<float> want({1, 65536});
      std::vector<double> bound;
      for (int64_t i = 0; i < want.elements(); ++i) {
        const auto z = static_cast<double>(c.bias[i]);
        const double exact = exact_gelu(z, gelu);
        want[i] = static_cast<float>(exact);
        bound.push_back(fit + tolerance::kGeluInstruction * std::abs(z) +
                        rounding(dtype) * std::abs(exact) + tolerance::kRoundF32);
      }
      expect_within(got.y, want, bound, concat(name(dtype), " ", static_cast<int>(gelu)));
    }
  }
}

TEST_F(CudaGemmBiasGelu, IsTheSameOnAnyNumberOfSms) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Case c({2500, 256, 512}, dtype);
    const Forward first = forward(own_gelu(), c, dtype, true, Activation::kGeluTanh);
    for (int run = 0; run < 3; ++run) {
      for (const int sm_count : {kAllSms, kFewSms}) {
        const Forward again = forward(own_gelu(sm_count), c, dtype, true, Activation::kGeluTanh);
        EXPECT_EQ(again.y.values, first.y.values);
        EXPECT_EQ(again.z.values, first.z.values);
      }
    }
  }
}

TEST_F(CudaGemmBiasGelu, AutoTakesItFromItsRoundsOn) {
  // 256 columns are one tile, so 6 row tiles abreast, and 2 rounds of these; of the exact form 1.
  for (const Activation gelu : kGelus) {
    const int64_t most = (gelu == Activation::kGelu ? 5 : 11) * 128;  // of the library
    for (const int64_t rows : {most, most + 1}) {
      const Case c({rows, 64, 256}, DType::kBF16);
      const auto run = [&](GeluGemms choice) {
        return forward(gelu_gpu(choice, kFewSms), c, c.dtype, true, gelu);
      };
      const Forward want = run(rows == most ? GeluGemms::kLibrary : GeluGemms::kOwn);
      EXPECT_EQ(run(GeluGemms::kAuto).y.values, want.y.values) << rows;
    }
  }
}

TEST_F(CudaGemmBiasGelu, WhatItCannotServeIsRefused) {
  const auto run = [](const Shape& shape, DType dtype, bool with_bias) {
    return [=] { forward(own_gelu(), Case(shape, dtype), dtype, with_bias, Activation::kGelu); };
  };
  const Shape whole{129, 64, 256};
  expect_refused(run({129, 64, 264}, DType::kBF16, true), "264 columns");
  expect_refused(run({129, 72, 256}, DType::kBF16, true), "72 indices");
  expect_refused(run(whole, DType::kBF16, false), "without a bias");
  expect_refused(run(whole, DType::kF32, true), "f32");
  // Products without a GELU are the library's.
  expect_forward(Case({129, 72, 264}, DType::kBF16), true, Activation::kTanh, own_gelu());
}

}  // namespace
}  // namespace bertha::testing

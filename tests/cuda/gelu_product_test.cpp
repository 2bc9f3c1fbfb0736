#include "tests/cuda/linear_case.h"

namespace bertha::testing {
namespace {

// By default it takes larger products only. Ragged and whole tiles of 128 rows and 256 columns; few
// multiprocessors give each several tiles in turn.
constexpr Shape kGeluShapes[] = {{1, 64, 256},     {7, 256, 512},   {33, 128, 256},
                                 {127, 64, 256},   {128, 192, 768}, {129, 768, 256},
                                 {511, 1024, 512}, {2500, 64, 256}};

const TestBackend& own_gelu(int multiprocessors) {
  using Choice = CudaOptions::GeluProducts;
  static const TestBackend all = make_gpu({.gelu_products = Choice::kOwn});
  static const TestBackend few =
      make_gpu({.gelu_products = Choice::kOwn, .gemm_multiprocessors = 6});
  return multiprocessors == 0 ? all : few;
}

TEST(CudaGeluProduct, MatchesTheReference) {
  for (const int multiprocessors : {0, 6}) {
    for (const Shape& shape : kGeluShapes) {
      for (const DType dtype : {DType::kF16, DType::kBF16}) {
        expect_forward(Case(shape, dtype), true, Activation::kGelu, own_gelu(multiprocessors));
      }
    }
  }
}

TEST(CudaGeluProduct, TakesGeluOfTheStoredPreActivation) {
  // At any size: beyond +-10 the result is z or 0 to the last bit.
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Case c({300, 64, 256}, dtype);
    c.bias = rounded_to(dtype, scaled(random_tensor({256}, 3), 100.0f));
    const Forward got = forward(own_gelu(0), c, dtype, true, Activation::kGelu);
    for (int64_t i = 0; i < got.z.elements(); ++i) {
      const float z = got.z[i];
      if (std::abs(z) < 10.0f) continue;
      ASSERT_EQ(got.y[i], z > 0.0f ? z : 0.0f) << name(dtype) << " " << i;
    }
  }
}

TEST(CudaGeluProduct, IsTheSameOnAnyNumberOfMultiprocessors) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Case c({2500, 256, 512}, dtype);
    const Forward first = forward(own_gelu(0), c, dtype, true, Activation::kGelu);
    for (int run = 0; run < 3; ++run) {
      for (const int multiprocessors : {0, 6}) {
        const Forward again = forward(own_gelu(multiprocessors), c, dtype, true, Activation::kGelu);
        EXPECT_EQ(again.y.values, first.y.values);
        EXPECT_EQ(again.z.values, first.z.values);
      }
    }
  }
}

TEST(CudaGeluProduct, WhatItCannotServeTheLibraryDoes) {
  // Columns, inner indices, no bias, f32.
  for (const Shape& shape : {Shape{129, 64, 264}, Shape{129, 72, 256}}) {
    expect_forward(Case(shape, DType::kBF16), true, Activation::kGelu, own_gelu(0));
  }
  const Shape whole{129, 64, 256};
  expect_forward(Case(whole, DType::kBF16), false, Activation::kGelu, own_gelu(0));
  expect_forward(Case(whole, DType::kF32), true, Activation::kGelu, own_gelu(0));
}

}  // namespace
}  // namespace bertha::testing

#include "kernels/ops/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/fp8.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/cpu/activations.h"
#include "tests/support/fp8_case.h"

namespace bertha {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class Q>
struct Quantized {
  std::vector<Q> q;
  std::vector<Q> transposed;
  float amax = 0;
  int64_t saturated = 0;
};

template <class Q>
Quantized<Q> quantized(HostTensor<float>& x, float scale, int64_t live_rows,
                       float amax_before = 0) {
  const int64_t rows = x.extents[0];
  const int64_t columns = x.extents[1];
  Quantized<Q> out{.q = std::vector<Q>(x.values.size(), Q{0xAA}),
                   .transposed = std::vector<Q>(x.values.size(), Q{0xAA}),
                   .amax = amax_before,
                   .saturated = 7};
  auto live = static_cast<int32_t>(live_rows);
  run_on_cpu(Quantize{.x = x.view(),
                      .scale = View(&scale, DType::kF32, {1}),
                      .q = View(out.q.data(), kDTypeOf<Q>, {rows, columns}),
                      .transposed = View(out.transposed.data(), kDTypeOf<Q>, {columns, rows}),
                      .amax = View(&out.amax, DType::kF32, {1}),
                      .saturated = View(&out.saturated, DType::kI64, {1}),
                      .live_rows = View(&live, DType::kI32, {1})},
             2);
  return out;
}

/// The nearest of all finite codes by search, the even one of two, and the largest beyond them.
template <class Q>
uint8_t nearest_code(double value) {
  const double magnitude = std::min(std::fabs(value), static_cast<double>(Q::kMax));
  uint8_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int code = 0; code < 0x7F; ++code) {
    const auto of_code = static_cast<double>(to_float(Q{static_cast<uint8_t>(code)}));
    if (!std::isfinite(of_code)) break;
    const double distance = std::fabs(of_code - magnitude);
    if (distance < least || (distance == least && code % 2 == 0)) {
      best = static_cast<uint8_t>(code);
      least = distance;
    }
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

template <class Q>
class QuantizeTest : public testing::Test {};
using Formats = testing::Types<Fp8E4M3, Fp8E5M2>;
TYPED_TEST_SUITE(QuantizeTest, Formats);

TYPED_TEST(QuantizeTest, GivesTheNearestCodesInBothLayouts) {
  for (const int64_t rows : {16, 48, 272}) {
    constexpr int64_t kColumns = 32;
    const int64_t live_rows = rows - 5;
    constexpr float kScale = 2.0f;
    HostTensor<float> x = fp8_values(rows, kColumns, 3);
    const Quantized<TypeParam> found = quantized<TypeParam>(x, kScale, live_rows);
    float amax = 0;
    int64_t saturated = 7;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < kColumns; ++column) {
        const auto i = static_cast<size_t>(row * kColumns + column);
        const uint8_t want = nearest_code<TypeParam>(static_cast<double>(x.values[i] * kScale));
        EXPECT_EQ(found.q[i].bits, want) << x.values[i];
        EXPECT_EQ(found.transposed[static_cast<size_t>(column * rows + row)].bits, want);
        if (row >= live_rows) continue;
        amax = std::max(amax, std::fabs(x.values[i]));
        saturated += std::fabs(x.values[i] * kScale) > TypeParam::kMax ? 1 : 0;
      }
    }
    EXPECT_EQ(found.amax, amax);
    EXPECT_EQ(found.saturated, saturated);
    EXPECT_GT(saturated, 7);
  }
}

TYPED_TEST(QuantizeTest, AmaxKeepsTheLargerOneAndSeesNoPadding) {
  HostTensor<float> x({16, 16}, 0.25f);
  x[0] = -3.0f;
  x[15 * 16] = 100.0f;  // beyond the live rows
  EXPECT_EQ(quantized<TypeParam>(x, 1.0f, 15).amax, 3.0f);
  EXPECT_EQ(quantized<TypeParam>(x, 1.0f, 15, 4.0f).amax, 4.0f);
  EXPECT_EQ(quantized<TypeParam>(x, 1.0f, 0).amax, 0.0f);
}

TYPED_TEST(QuantizeTest, AmaxShowsWhatSaturationHides) {
  HostTensor<float> x({16, 16}, 1.0f);
  x[3] = -kInfinity;
  const Quantized<TypeParam> infinite = quantized<TypeParam>(x, 1.0f, 16);
  EXPECT_EQ(infinite.amax, kInfinity);
  EXPECT_EQ(to_float(infinite.q[3]), -TypeParam::kMax);
  EXPECT_EQ(infinite.saturated, 8);
  x[4] = std::numeric_limits<float>::quiet_NaN();
  const Quantized<TypeParam> nan = quantized<TypeParam>(x, 1.0f, 16);
  EXPECT_TRUE(std::isnan(nan.amax));
  EXPECT_TRUE(std::isnan(to_float(nan.q[4])));
  EXPECT_EQ(nan.saturated, 8);
}

TEST(Quantize, WithoutOutputsOnlyTheMaximumIsTaken) {
  HostTensor<float> x = fp8_values(33, 7, 3);
  float wanted = 0;
  for (const float value : x.values) wanted = std::max(wanted, std::fabs(value));
  float amax = 0;
  run_on_cpu(Quantize{.x = x.view(),
                      .scale = View(),
                      .q = View(),
                      .transposed = View(),
                      .amax = View(&amax, DType::kF32, {1}),
                      .saturated = View()});
  EXPECT_EQ(amax, wanted);
}

/// q of Quantize with those fields.
std::vector<Fp8E5M2> codes_of(Quantize args, const View& x) {
  std::vector<Fp8E5M2> q(static_cast<size_t>(x.elements()));
  float scale = 64.0f;
  float amax = 0.0f;
  int64_t saturated = 0;
  args.x = x;
  args.scale = View(&scale, DType::kF32, {1});
  args.q = View(q.data(), DType::kE5M2, {x.extent(0), x.extent(1)});
  args.amax = View(&amax, DType::kF32, {1});
  args.saturated = View(&saturated, DType::kI64, {1});
  run_on_cpu(args, 2);
  return q;
}

std::vector<uint8_t> bytes_of(const std::vector<Fp8E5M2>& codes) {
  std::vector<uint8_t> bytes;
  for (const Fp8E5M2 code : codes) bytes.push_back(code.bits);
  return bytes;
}

Quantize with(Activation activation, const View& derivative = View(), const View& sums = View()) {
  return {.x = View(),
          .scale = View(),
          .q = View(),
          .transposed = View(),
          .amax = View(),
          .saturated = View(),
          .activation = activation,
          .derivative = derivative,
          .column_sums = sums};
}

TEST(Quantize, OfAGeluIsThatOfItsResultAndItsDerivativeBytes) {
  HostTensor<float> z = random_tensor({144, 33}, 4);
  for (float& value : z.values) value *= 2.5f;  // to where a GELU is flat
  HostTensor<float> dy = random_tensor({144, 33}, 5);
  HostTensor<float> result({144, 33});
  HostTensor<float> sums({33}, 9.0f);
  for (const Activation activation : {Activation::kGeluTanh, Activation::kGelu}) {
    activate(activation, z.values.data(), z.elements(), result.values.data());
    HostTensor<uint8_t> derivative({144, 33});
    EXPECT_EQ(bytes_of(codes_of(with(activation, derivative.view()), z.view())),
              bytes_of(codes_of(with(Activation::kNone), result.view())));
    const std::vector<float> ones(z.values.size(), 1.0f);
    differentiate(activation, ones.data(), z.values.data(), z.elements(), result.values.data());
    for (size_t i = 0; i < result.values.size(); ++i) {
      const float stored =
          static_cast<float>(derivative.values[i] - kDerivativeZero) * kDerivativeStep;
      EXPECT_NEAR(stored, result.values[i], 0.501f * kDerivativeStep) << z.values[i];
      result.values[i] = dy.values[i] * stored;
    }
    EXPECT_EQ(
        bytes_of(codes_of(with(Activation::kNone, derivative.view(), sums.view()), dy.view())),
        bytes_of(codes_of(with(Activation::kNone), result.view())));
    double sum = 0;
    for (int64_t row = 0; row < 144; ++row) sum += static_cast<double>(result[row * 33 + 32]);
    EXPECT_NEAR(static_cast<double>(sums[32]), sum, 1e-5);
  }
}

TEST(Quantize, SumsTheColumnsOfWhatItRounds) {
  HostTensor<float> x = random_tensor({144, 33}, 6);
  HostTensor<float> sums({33}, 9.0f);
  Quantize args = with(Activation::kNone, View(), sums.view());
  for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
    args.accumulate_sums = accumulate;
    EXPECT_EQ(bytes_of(codes_of(args, x.view())),
              bytes_of(codes_of(with(Activation::kNone), x.view())));
  }
  for (int64_t column = 0; column < 33; ++column) {
    double sum = 0;
    for (int64_t row = 0; row < 144; ++row) sum += static_cast<double>(x[row * 33 + column]);
    EXPECT_NEAR(static_cast<double>(sums[column]), 2 * sum, 2e-5);
  }
}

TEST(Quantize, OfAMatrixOfFp8TransposesIt) {
  std::vector<uint8_t> x{1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> turned(6);
  Quantize args = with(Activation::kNone);
  args.x = View(x.data(), DType::kE4M3, {2, 3});
  args.transposed = View(turned.data(), DType::kE4M3, {3, 2});
  run_on_cpu(args);
  EXPECT_EQ(turned, (std::vector<uint8_t>{1, 4, 2, 5, 3, 6}));
  args.derivative = View(turned.data(), DType::kU8, {2, 3});
  EXPECT_THROW(validate(args), Error);
}

struct Scales {
  std::vector<float> amax;
  std::vector<float> scale;
  std::vector<float> inverse;
  double sum = 5;
};

Scales updated(const std::vector<float>& amax, DType format) {
  Scales s{.amax = amax,
           .scale = std::vector<float>(amax.size(), 4.0f),
           .inverse = std::vector<float>(amax.size() * kInverseScaleCopies, 0.25f)};
  const auto matrices = static_cast<int64_t>(amax.size());
  run_on_cpu(UpdateScales{
      .amax = View(s.amax.data(), DType::kF32, {matrices}),
      .scale = View(s.scale.data(), DType::kF32, {matrices}),
      .inverse_scale = View(s.inverse.data(), DType::kF32, {matrices, kInverseScaleCopies}),
      .sum_of_squares = View(&s.sum, DType::kF64, {1}),
      .format = format});
  return s;
}

TEST(UpdateScales, TakesTheLargestPowerOfTwoAtWhichTheMaximumFits) {
  std::vector<float> amax{1.0f, 448.0f, std::nextafter(448.0f, 1e9f), 57344.0f, 1e-30f, 3e-7f};
  for (int i = 0; i < 200; ++i) amax.push_back(std::ldexp(1.0f + 0.005f * i, i % 60 - 30));
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    const double largest = format == DType::kE4M3 ? 448.0 : 57344.0;
    const Scales s = updated(amax, format);
    for (size_t i = 0; i < amax.size(); ++i) {
      int exponent = 0;
      EXPECT_EQ(std::frexp(s.scale[i], &exponent), 0.5f) << amax[i];  // a power of two
      for (size_t copy = 0; copy < kInverseScaleCopies; ++copy) {
        EXPECT_EQ(s.scale[i] * s.inverse[i * kInverseScaleCopies + copy], 1.0f);
      }
      EXPECT_EQ(s.amax[i], 0.0f);
      const double scaled = static_cast<double>(amax[i]) * static_cast<double>(s.scale[i]);
      EXPECT_LE(scaled, largest);
      if (exponent < 101) {
        EXPECT_GT(2 * scaled, largest) << amax[i];
      }
    }
    EXPECT_EQ(s.sum, 5);
  }
}

TEST(UpdateScales, KeepsTheScaleWithoutAUsableMaximumAndMarksTheSum) {
  EXPECT_EQ(updated({0.0f}, DType::kE4M3).scale[0], 4.0f);
  EXPECT_EQ(updated({0.0f}, DType::kE4M3).sum, 5);
  for (const float amax : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const Scales s = updated({1.0f, amax}, DType::kE5M2);
    EXPECT_EQ(s.scale[1], 4.0f);
    EXPECT_EQ(s.inverse[kInverseScaleCopies], 0.25f);
    EXPECT_EQ(s.amax[1], 0.0f);
    EXPECT_TRUE(std::isnan(s.sum));
  }
}

TEST(UpdateScales, WrongArgumentsAreRefused) {
  EXPECT_THROW(updated({1.0f}, DType::kU8), Error);
  float number = 1;
  const View one(&number, DType::kF32, {1});
  std::vector<float> copies(kInverseScaleCopies);
  UpdateScales args{.amax = one,
                    .scale = one,
                    .inverse_scale = View(copies.data(), DType::kF32, {1, kInverseScaleCopies}),
                    .sum_of_squares = View()};
  EXPECT_NO_THROW(validate(args));
  args.scale = View(&number, DType::kF32, {2});
  EXPECT_THROW(validate(args), Error);
}

TEST(QuantizeArguments, WrongOnesAreNamed) {
  HostTensor<float> x({16, 24});
  const auto message = [&](auto change) {
    HostTensor<float> matrix({16, 32});
    std::vector<Fp8E4M3> q(16 * 32);
    float scalar = 1;
    int64_t count = 0;
    Quantize args{.x = matrix.view(),
                  .scale = View(&scalar, DType::kF32, {1}),
                  .q = View(q.data(), DType::kE4M3, {16, 32}),
                  .transposed = View(),
                  .amax = View(&scalar, DType::kF32, {1}),
                  .saturated = View(&count, DType::kI64, {1})};
    change(args);
    return error_of([&] { validate(args); }, ExitCode::kInternal);
  };
  EXPECT_EQ(message([](Quantize&) {}), "no error");
  const auto has = [&](auto change, const char* part) {
    EXPECT_THAT(message(change), HasSubstr(part));
  };
  has([&](Quantize& args) { args.x = x.view(); }, "want e4m3 [16,24]");
  has([](Quantize& args) { args.q.dtype = DType::kU8; }, "want e4m3 or e5m2");
  has([](Quantize& args) { args.scale = View(); }, "scale");
  has([](Quantize& args) { args.saturated = View(); }, "saturated");
  EXPECT_EQ(message([](Quantize& args) { args.q = args.scale = args.saturated = View(); }),
            "no error");
  has([](Quantize& args) { args.live_rows = args.scale; }, "live_rows");
  has(
      [](Quantize& args) {
        args.transposed = View(args.q.data, DType::kE5M2, {32, 16});
      },
      "transposed");
  has([](Quantize& args) { args.activation = Activation::kTanh; }, "want a GELU or none");
  has([](Quantize& args) { args.derivative = args.x; }, "want u8 [16,32]");
  has(
      [](Quantize& args) {
        args.activation = Activation::kGelu;
        args.column_sums = args.x;
      },
      "but the input is not a gradient");
  has([](Quantize& args) { args.column_sums = args.x; }, "want f32 [32]");
}

TEST(QuantizeArguments, WeightsAreAlike) {
  HostTensor<float> matrix({16, 16});
  std::vector<Fp8E4M3> q(16 * 16);
  float scalar = 1;
  int64_t count = 0;
  const std::vector<Quantize> weights(3, {.x = matrix.view(),
                                          .scale = View(&scalar, DType::kF32, {1}),
                                          .q = View(q.data(), DType::kE4M3, {16, 16}),
                                          .transposed = View(),
                                          .amax = View(&scalar, DType::kF32, {1}),
                                          .saturated = View(&count, DType::kI64, {1})});
  EXPECT_NO_THROW(validate(QuantizeWeights{.weights = weights}));
  EXPECT_NO_THROW(validate(QuantizeWeights{}));
  const auto message = [&](auto change) -> std::string {
    std::vector<Quantize> changed = weights;
    change(changed[2]);
    return error_of([&] { validate(QuantizeWeights{.weights = changed}); }, ExitCode::kInternal);
  };
  EXPECT_THAT(message([](Quantize& weight) { weight.q.dtype = DType::kE5M2; }),
              HasSubstr("f32 to e5m2 and one of f32 to e4m3"));
  EXPECT_THAT(message([](Quantize& weight) { weight.q = View(); }), HasSubstr("without output"));
  EXPECT_THAT(message([](Quantize& weight) { weight.activation = Activation::kGelu; }),
              HasSubstr("activation"));
}

}  // namespace
}  // namespace bertha

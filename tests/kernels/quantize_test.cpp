#include "kernels/ops/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/fp8.h"
#include "kernels/cpu/operations.h"
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
  const Quantize args{.x = x.view(),
                      .scale = View(&scale, DType::kF32, {1}),
                      .q = View(out.q.data(), dtype_of<Q>(), {rows, columns}),
                      .transposed = View(out.transposed.data(), dtype_of<Q>(), {columns, rows}),
                      .amax = View(&out.amax, DType::kF32, {1}),
                      .saturated = View(&out.saturated, DType::kI64, {1}),
                      .live_rows = live_rows};
  validate(args);
  WorkerPool pool(2);
  run_cpu(pool, args);
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
  WorkerPool pool(1);
  run_cpu(pool, Quantize{.x = x.view(),
                         .scale = View(),
                         .q = View(),
                         .transposed = View(),
                         .amax = View(&amax, DType::kF32, {1}),
                         .saturated = View(),
                         .live_rows = 33});
  EXPECT_EQ(amax, wanted);
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
           .inverse = std::vector<float>(amax.size(), 0.25f)};
  const auto view = [](std::vector<float>& values) {
    return View(values.data(), DType::kF32, {static_cast<int64_t>(values.size())});
  };
  const UpdateScales args{.amax = view(s.amax),
                          .scale = view(s.scale),
                          .inverse_scale = view(s.inverse),
                          .sum_of_squares = View(&s.sum, DType::kF64, {1}),
                          .format = format};
  validate(args);
  WorkerPool pool(1);
  run_cpu(pool, args);
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
      EXPECT_EQ(s.scale[i] * s.inverse[i], 1.0f);
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
    EXPECT_EQ(s.inverse[1], 0.25f);
    EXPECT_EQ(s.amax[1], 0.0f);
    EXPECT_TRUE(std::isnan(s.sum));
  }
}

TEST(UpdateScales, WrongArgumentsAreRefused) {
  EXPECT_THROW(updated({1.0f}, DType::kU8), Error);
  float number = 1;
  const View one(&number, DType::kF32, {1});
  UpdateScales args{.amax = one, .scale = one, .inverse_scale = one, .sum_of_squares = View()};
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
                  .saturated = View(&count, DType::kI64, {1}),
                  .live_rows = 16};
    change(args);
    try {
      validate(args);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message([](Quantize&) {}), "");
  const auto has = [&](auto change, const char* part) {
    const std::string found = message(change);
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  has([&](Quantize& args) { args.x = x.view(); }, "want e4m3 [16,24]");
  has([](Quantize& args) { args.q.dtype = DType::kU8; }, "want e4m3 or e5m2");
  has([](Quantize& args) { args.scale = View(); }, "scale");
  has([](Quantize& args) { args.saturated = View(); }, "saturated");
  EXPECT_EQ(message([](Quantize& args) { args.q = args.scale = args.saturated = View(); }), "");
  has([](Quantize& args) { args.live_rows = 17; }, "live_rows");
  has(
      [](Quantize& args) {
        args.transposed = View(args.q.data, DType::kE5M2, {32, 16});
      },
      "transposed");
}

}  // namespace
}  // namespace bertha

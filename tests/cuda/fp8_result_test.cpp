// Operations that round their result to fp8 as they compute it give the bytes of Quantize after the
// operation in io.

#include "kernels/ops/fp8_result.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/ops/quantize.h"
#include "kernels/ops/residual_ln.h"
#include "tests/cuda/gpu.h"
#include "tests/support/expect_close.h"
#include "tests/support/tolerance.h"

namespace bertha::testing {
namespace {

struct Outcome {
  std::vector<uint8_t> q;
  std::vector<uint8_t> transposed;
  uint32_t amax_bits = 0;
  int64_t saturated = 0;
  std::vector<std::vector<uint32_t>> others;  // outputs that do not depend on the rounding
  std::vector<std::vector<float>> sums;       // nor these, but for the order of additions

  bool is_but_for_sums(const Outcome& other) const {
    return q == other.q && transposed == other.transposed && amax_bits == other.amax_bits &&
           saturated == other.saturated && others == other.others;
  }
};

/// NaN is equal to itself.
std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

/// Device memory of an Fp8Result.
class Fp8Memory {
 public:
  Fp8Memory(const TestBackend& backend, DType format, int64_t rows, int64_t columns, float scale,
            int64_t live_rows)
      : format_(format),
        q_(backend, HostTensor<uint8_t>({rows, columns}, 0xAA)),
        transposed_(backend, HostTensor<uint8_t>({columns, rows}, 0xAA)),
        scale_(backend, DType::kF32, HostTensor<float>({1}, scale)),
        amax_(backend, DType::kF32, HostTensor<float>({1}, 0.125f)),
        saturated_(backend, HostTensor<int64_t>({1}, 5)),
        live_rows_(backend, HostTensor<int32_t>({1}, static_cast<int32_t>(live_rows))) {}

  Fp8Result result(bool wants_transposed) const {
    View q = q_.view();
    q.dtype = format_;
    View transposed = wants_transposed ? transposed_.view() : View();
    if (wants_transposed) transposed.dtype = format_;
    return {.q = q,
            .transposed = transposed,
            .scale = scale_.view(),
            .amax = amax_.view(),
            .saturated = saturated_.view(),
            .live_rows = live_rows_.view()};
  }
  Outcome outcome() const {
    return {.q = q_.values<uint8_t>().values,
            .transposed = transposed_.values<uint8_t>().values,
            .amax_bits = std::bit_cast<uint32_t>(amax_.floats()[0]),
            .saturated = saturated_.values<int64_t>()[0],
            .others = {},
            .sums = {}};
  }

 private:
  DType format_;
  DeviceTensor q_, transposed_, scale_, amax_, saturated_, live_rows_;
};

enum class How : uint8_t { kByTheOperation, kByQuantize };

struct NormCase {
  int64_t rows;
  int64_t columns;
  DType io;
  DType format;
  float probability;
  bool wants_transposed = true;
  float beta = 0.0f;     // of column 5, instead of a random number
  float padding = 0.0f;  // of an element in the last row, likewise

  int64_t live_rows() const { return rows - rows / 10; }
};

HostTensor<float> with(HostTensor<float> values, int64_t at, float special) {
  if (special != 0.0f) values[at] = special;
  return values;
}

/// Some of the numbers, which are of order one, are beyond the largest.
float scale_of(DType format) { return format == DType::kE4M3 ? 512.0f : 65536.0f; }

Outcome norm_forward(const TestBackend& backend, const NormCase& c, How how) {
  const auto matrix = [&](const HostTensor<float>& values) {
    return DeviceTensor(backend, c.io, values);
  };
  const auto vector = [&](uint32_t seed) {
    return DeviceTensor(backend, c.io, random_tensor({c.columns}, seed));
  };
  const DeviceTensor x = matrix(random_tensor({c.rows, c.columns}, 1));
  const DeviceTensor residual =
      matrix(with(random_tensor({c.rows, c.columns}, 2), (c.rows - 1) * c.columns + 3, c.padding));
  const DeviceTensor bias = vector(3);
  const DeviceTensor gamma = vector(4);
  const DeviceTensor beta(backend, c.io, with(random_tensor({c.columns}, 5), 5, c.beta));
  const DeviceTensor sum = matrix(garbage_tensor({c.rows, c.columns}));
  const DeviceTensor y = matrix(garbage_tensor({c.rows, c.columns}));
  const DeviceTensor mean(backend, DType::kF32, garbage_tensor({c.rows}));
  const DeviceTensor rstd(backend, DType::kF32, garbage_tensor({c.rows}));
  const DeviceTensor mask(backend, HostTensor<uint8_t>({c.rows, c.columns / 8}, 0x5B));
  const DeviceTensor state(backend, random_state(7, 41));
  const bool drops = c.probability > 0.0f;
  const Fp8Memory fp8(backend, c.format, c.rows, c.columns, scale_of(c.format), c.live_rows());
  const Fp8Result wanted = fp8.result(c.wants_transposed);
  backend.ops->run(ResidualLnFwd{
      .x = x.view(),
      .bias = bias.view(),
      .residual = residual.view(),
      .gamma = gamma.view(),
      .beta = beta.view(),
      .sum = sum.view(),
      .y = y.view(),
      .mean = mean.view(),
      .rstd = rstd.view(),
      .mask = drops ? mask.view() : View(),
      .dropout = {.random = drops ? state.view() : View(), .probability = c.probability, .site = 5},
      .y_fp8 = how == How::kByTheOperation ? wanted : Fp8Result{}});
  if (how == How::kByQuantize) backend.ops->run(quantize_to(wanted, y.view()));
  Outcome outcome = fp8.outcome();
  for (const DeviceTensor* tensor : {&sum, &y, &mean, &rstd}) {
    outcome.others.push_back(bits_of(tensor->floats().values));
  }
  const std::vector<uint8_t> kept = mask.values<uint8_t>().values;
  outcome.others.emplace_back(kept.begin(), kept.end());
  return outcome;
}

Outcome norm_backward(const TestBackend& backend, const NormCase& c, How how) {
  const auto matrix = [&](uint32_t seed) {
    return DeviceTensor(backend, c.io, random_tensor({c.rows, c.columns}, seed));
  };
  const auto vector = [&](uint32_t seed) {
    return DeviceTensor(backend, c.io, random_tensor({c.columns}, seed));
  };
  const DeviceTensor dy = matrix(1);
  const DeviceTensor sum = matrix(2);
  const DeviceTensor dresidual = matrix(3);
  const DeviceTensor dx = matrix(4);
  const DeviceTensor gamma = vector(5);
  const DeviceTensor dgamma = vector(6);
  const DeviceTensor dbeta = vector(7);
  const DeviceTensor dbias = vector(8);
  const DeviceTensor mean(backend, DType::kF32, HostTensor<float>({c.rows}, 0.1f));
  const DeviceTensor rstd(backend, DType::kF32, HostTensor<float>({c.rows}, 0.8f));
  const DeviceTensor mask(backend, HostTensor<uint8_t>({c.rows, c.columns / 8}, 0x5B));
  const DeviceTensor state(backend, random_state(7, 41));
  const bool drops = c.probability > 0.0f;
  const Fp8Memory fp8(backend, c.format, c.rows, c.columns, scale_of(c.format), c.live_rows());
  const Fp8Result wanted = fp8.result(c.wants_transposed);
  backend.ops->run(ResidualLnBwd{
      .dy = dy.view(),
      .sum = sum.view(),
      .mean = mean.view(),
      .rstd = rstd.view(),
      .mask = drops ? mask.view() : View(),
      .gamma = gamma.view(),
      .dresidual = dresidual.view(),
      .dx = dx.view(),
      .dgamma = dgamma.view(),
      .dbeta = dbeta.view(),
      .dbias = dbias.view(),
      .dropout = {.random = drops ? state.view() : View(), .probability = c.probability, .site = 5},
      .accumulate = Accumulate::kYes,
      .dx_fp8 = how == How::kByTheOperation ? wanted : Fp8Result{}});
  if (how == How::kByQuantize) backend.ops->run(quantize_to(wanted, dx.view()));
  Outcome outcome = fp8.outcome();
  // Sums of dy have no rounding, in any order: its elements are multiples of 2^-10.
  for (const DeviceTensor* tensor : {&dresidual, &dbeta}) {
    outcome.others.push_back(bits_of(tensor->floats().values));
  }
  for (const DeviceTensor* tensor : {&dgamma, &dbias}) {
    outcome.sums.push_back(tensor->floats().values);
  }
  return outcome;
}

using Run = Outcome (*)(const TestBackend& backend, const NormCase& c, How how);

void expect_norm(Run run, const TestBackend& backend, const NormCase& c) {
  const Outcome got = run(backend, c, How::kByTheOperation);
  const Outcome want = run(backend, c, How::kByQuantize);
  EXPECT_TRUE(got.is_but_for_sums(want))
      << name(c.io) << " to " << name(c.format) << ", " << c.rows << " x " << c.columns
      << ", dropout " << c.probability << ", beta " << c.beta << ", padding " << c.padding
      << (c.wants_transposed ? "" : ", not transposed");
  for (size_t i = 0; i < want.sums.size(); ++i) {
    const std::vector<double> exact(want.sums[i].begin(), want.sums[i].end());
    // Each term is below 8.
    const double most = rounding(c.io) * largest_magnitude(exact) +
                        tolerance::product_f32(c.rows) * 8 * static_cast<double>(c.rows);
    expect_close(got.sums[i], exact, c.wants_transposed ? 2 * most : 0.0, "sum", 1.0);
  }
  if (c.rows > 100) {
    EXPECT_GT(got.saturated, 5);
  }
}

/// In f32 on the CPU, in all dtypes on the GPU.
void expect_norm_everywhere(Run run, NormCase c) {
  c.io = DType::kF32;
  expect_norm(run, cpu(), c);
  for (const DType io : kIoTypes) {
    c.io = io;
    expect_norm(run, gpu(), c);
  }
}

using CudaFp8Result = NeedsSm90a;

TEST_F(CudaFp8Result, OfResidualLnIsThatOfQuantize) {
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    for (const float probability : {0.0f, 0.1f}) {
      for (const auto& [rows, columns] :
           {std::pair<int64_t, int64_t>{0, 64}, {16, 16}, {144, 768}, {528, 1024}, {32, 4112}}) {
        for (const bool transposed : {true, false}) {
          const NormCase c{rows, columns, DType::kF32, format, probability, transposed};
          expect_norm_everywhere(norm_forward, c);
          expect_norm_everywhere(norm_backward, c);
        }
      }
    }
  }
}

// A kernel for few rows, one for many, and neither.
TEST_F(CudaFp8Result, OfResidualLnIsThatOfQuantizeAtEveryNumberOfRows) {
  for (const DType io : {DType::kBF16, DType::kF16}) {
    for (const int64_t columns : {256, 512, 768, 1024}) {
      for (const int64_t rows : {16, 32, 48, 1008, 1024, 4112, 8464}) {
        for (const float probability : {0.0f, 0.1f}) {
          expect_norm(norm_forward, gpu(), {rows, columns, io, DType::kE4M3, probability});
          expect_norm(norm_backward, gpu(), {rows, columns, io, DType::kE5M2, probability});
        }
      }
    }
  }
  // A block takes several groups.
  expect_norm(norm_backward, gpu(), {17168, 1024, DType::kBF16, DType::kE5M2, 0.1f});
}

TEST_F(CudaFp8Result, OfResidualLnForwardShowsInfinityAndNaNOfLiveRowsAlone) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t rows : {48, 8464}) {
    const auto amax = [&](float beta, float padding) {
      const NormCase c{rows, 1024, DType::kBF16, DType::kE4M3, 0.1f, true, beta, padding};
      expect_norm(norm_forward, gpu(), c);
      return std::bit_cast<float>(norm_forward(gpu(), c, How::kByTheOperation).amax_bits);
    };
    EXPECT_EQ(amax(kInfinity, 0.0f), kInfinity);
    EXPECT_TRUE(std::isnan(amax(kNaN, 0.0f)));
    EXPECT_TRUE(std::isfinite(amax(0.0f, kInfinity)));
    EXPECT_TRUE(std::isfinite(amax(0.0f, kNaN)));
  }
}

}  // namespace
}  // namespace bertha::testing

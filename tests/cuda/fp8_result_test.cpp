// Operations that round their result to fp8 as they compute it give the bytes of Quantize after the
// operation in io.

#include <gtest/gtest.h>

#include <bit>

#include "kernels/base/tests/tolerance.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/residual_ln.h"
#include "tests/cuda/gpu.h"

namespace bertha::testing {
namespace {

struct Outcome {
  std::vector<uint8_t> q;
  uint32_t amax_bits = 0;
  int64_t saturated = 0;
  std::vector<std::vector<float>> others;  // outputs that do not depend on the rounding

  bool operator==(const Outcome&) const = default;
};

struct NormCase {
  int64_t rows;
  int64_t columns;
  DType io;
  DType format;
  float probability;

  int64_t live_rows() const { return rows - rows / 10; }
  /// Some of the numbers, which are of order one, are beyond the largest.
  float scale() const { return format == DType::kE4M3 ? 512.0f : 65536.0f; }
};

/// Device memory of an Fp8Result.
class Fp8Memory {
 public:
  Fp8Memory(const TestBackend& backend, const NormCase& c)
      : format_(c.format),
        q_(backend, HostTensor<uint8_t>({c.rows, c.columns}, 0xAA)),
        scale_(backend, DType::kF32, HostTensor<float>({1}, c.scale())),
        amax_(backend, DType::kF32, HostTensor<float>({1}, 0.125f)),
        saturated_(backend, HostTensor<int64_t>({1}, 5)),
        live_rows_(backend, HostTensor<int32_t>({1}, static_cast<int32_t>(c.live_rows()))) {}

  Fp8Result result() const {
    View q = q_.view();
    q.dtype = format_;
    return {.q = q,
            .scale = scale_.view(),
            .amax = amax_.view(),
            .saturated = saturated_.view(),
            .live_rows = live_rows_.view()};
  }
  Outcome outcome() const {
    return {.q = q_.values<uint8_t>().values,
            .amax_bits = std::bit_cast<uint32_t>(amax_.floats()[0]),
            .saturated = saturated_.values<int64_t>()[0],
            .others = {}};
  }

 private:
  DType format_;
  DeviceTensor q_, scale_, amax_, saturated_, live_rows_;
};

enum class How : uint8_t { kByTheOperation, kByQuantize };

Outcome norm_forward(const TestBackend& backend, const NormCase& c, How how) {
  const auto matrix = [&](uint32_t seed) {
    return DeviceTensor(backend, c.io, random_tensor({c.rows, c.columns}, seed));
  };
  const auto vector = [&](uint32_t seed) {
    return DeviceTensor(backend, c.io, random_tensor({c.columns}, seed));
  };
  const DeviceTensor x = matrix(1);
  const DeviceTensor residual = matrix(2);
  const DeviceTensor sum = matrix(3);
  const DeviceTensor y = matrix(4);
  const DeviceTensor bias = vector(5);
  const DeviceTensor gamma = vector(6);
  const DeviceTensor beta = vector(7);
  const DeviceTensor mean(backend, DType::kF32, HostTensor<float>({c.rows}, 0.0f));
  const DeviceTensor rstd(backend, DType::kF32, HostTensor<float>({c.rows}, 0.0f));
  const DeviceTensor mask(backend, HostTensor<uint8_t>({c.rows, c.columns / 8}, 0x5B));
  const DeviceTensor state(backend, random_state(7, 41));
  const bool drops = c.probability > 0.0f;
  const Fp8Memory fp8(backend, c);
  const Fp8Result wanted = fp8.result();
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
    outcome.others.push_back(tensor->floats().values);
  }
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
  const Fp8Memory fp8(backend, c);
  const Fp8Result wanted = fp8.result();
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
  for (const DeviceTensor* tensor : {&dresidual, &dgamma, &dbeta, &dbias}) {
    outcome.others.push_back(tensor->floats().values);
  }
  return outcome;
}

void expect_norm(const TestBackend& backend, const NormCase& c) {
  for (const auto& [pass, run] :
       {std::pair{"forward", &norm_forward}, std::pair{"backward", &norm_backward}}) {
    const Outcome got = run(backend, c, How::kByTheOperation);
    EXPECT_EQ(got, run(backend, c, How::kByQuantize))
        << pass << ", " << name(c.io) << " to " << name(c.format) << ", " << c.rows << " x "
        << c.columns;
    if (c.rows > 100) {
      EXPECT_GT(got.saturated, 5) << pass;
    }
  }
}

using CudaFp8Result = NeedsSm90a;

TEST_F(CudaFp8Result, OfResidualLnIsThatOfQuantize) {
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    for (const float probability : {0.0f, 0.1f}) {
      for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{0, 64},
                                          {16, 16},
                                          {48, 256},
                                          {48, 512},
                                          {144, 768},
                                          {528, 1024},
                                          {32, 4112}}) {
        NormCase c{rows, columns, DType::kF32, format, probability};
        expect_norm(cpu(), c);
        for (const DType io : kIoTypes) {
          c.io = io;
          expect_norm(gpu(), c);
        }
      }
    }
  }
}

}  // namespace
}  // namespace bertha::testing

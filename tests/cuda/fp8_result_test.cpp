// Operations that round their result to fp8 as they compute it give the bytes of Quantize after the
// operation in io.

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "kernels/base/tests/tolerance.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/residual_ln.h"
#include "tests/cuda/attention_run.h"

namespace bertha::testing {
namespace {

struct Outcome {
  std::vector<uint8_t> q;
  uint32_t amax_bits = 0;
  int64_t saturated = 0;
  std::vector<std::vector<float>> others;  // outputs that do not depend on the rounding

  bool operator==(const Outcome&) const = default;
};

/// A matrix and how it is rounded.
struct Rounding {
  int64_t rows;
  int64_t columns;
  int64_t live_rows;
  DType format;
  float scale;
};

struct NormCase {
  int64_t rows;
  int64_t columns;
  DType io;
  DType format;
  float probability;

  /// Some of the numbers, which are of order one, are beyond the largest.
  Rounding rounding() const {
    return {rows, columns, rows - rows / 10, format, format == DType::kE4M3 ? 512.0f : 65536.0f};
  }
};

/// Device memory of an Fp8Result.
class Fp8Memory {
 public:
  Fp8Memory(const TestBackend& backend, const Rounding& rounding)
      : format_(rounding.format),
        q_(backend, HostTensor<uint8_t>({rounding.rows, rounding.columns}, 0xAA)),
        scale_(backend, DType::kF32, HostTensor<float>({1}, rounding.scale)),
        amax_(backend, DType::kF32, HostTensor<float>({1}, 0.125f)),
        saturated_(backend, HostTensor<int64_t>({1}, 5)),
        live_rows_(backend, HostTensor<int32_t>({1}, static_cast<int32_t>(rounding.live_rows))) {}

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

enum class How : uint8_t { kByTheOperation, kWithoutY, kByQuantize };

/// A residual that replaces the random one: a matrix, or the LayerNorm of one. The operation then
/// has other parameters than without.
struct Residual {
  View matrix = {};
  ResidualNorm norm = {};
  View dropout_rows = {};
};

Outcome norm_forward_from(const TestBackend& backend, const NormCase& c, How how,
                          const Residual& given) {
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
  const DeviceTensor gamma = vector(given.matrix.has_data() ? 16 : 6);
  const DeviceTensor beta = vector(given.matrix.has_data() ? 17 : 7);
  const DeviceTensor mean(backend, DType::kF32, HostTensor<float>({c.rows}, 0.0f));
  const DeviceTensor rstd(backend, DType::kF32, HostTensor<float>({c.rows}, 0.0f));
  const DeviceTensor mask(backend, HostTensor<uint8_t>({c.rows, c.columns / 8}, 0x5B));
  const DeviceTensor state(backend, random_state(7, 41));
  const bool drops = c.probability > 0.0f;
  const Fp8Memory fp8(backend, c.rounding());
  const Fp8Result wanted = fp8.result();
  backend.ops->run(ResidualLnFwd{
      .x = x.view(),
      .bias = bias.view(),
      .residual = given.matrix.has_data() ? given.matrix : residual.view(),
      .gamma = gamma.view(),
      .beta = beta.view(),
      .sum = sum.view(),
      .y = y.view(),
      .mean = mean.view(),
      .rstd = rstd.view(),
      .mask = drops ? mask.view() : View(),
      .dropout = {.random = drops ? state.view() : View(), .probability = c.probability, .site = 5},
      .dropout_rows = given.dropout_rows,
      .y_fp8 = how == How::kByQuantize ? Fp8Result{} : wanted,
      .residual_norm = given.norm,
      .is_y_needed = how != How::kWithoutY});
  if (how == How::kByQuantize) backend.ops->run(quantize_to(wanted, y.view()));
  Outcome outcome = fp8.outcome();
  for (const DeviceTensor* tensor : {&sum, &mean, &rstd, &y}) {
    outcome.others.push_back(tensor->floats().values);
  }
  return outcome;
}

Outcome norm_forward(const TestBackend& backend, const NormCase& c, How how) {
  return norm_forward_from(backend, c, how, {});
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
  const Fp8Memory fp8(backend, c.rounding());
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
  Outcome with_y = norm_forward(backend, c, How::kByTheOperation);
  Outcome without_y = norm_forward(backend, c, How::kWithoutY);
  with_y.others.pop_back();
  without_y.others.pop_back();
  EXPECT_EQ(without_y, with_y) << name(c.io) << " to " << name(c.format);
}

/// A residual that is computed again gives the same as the one that was stored.
void expect_norm_of_norm(const TestBackend& backend, const NormCase& c) {
  const std::vector<std::vector<float>> before = norm_forward(backend, c, How::kByQuantize).others;
  const auto tensor = [&](DType dtype, std::initializer_list<int64_t> extents, size_t which) {
    HostTensor<float> host(extents);
    host.values = before[which];
    return DeviceTensor(backend, dtype, host);
  };
  const DeviceTensor sum = tensor(c.io, {c.rows, c.columns}, 0);
  const DeviceTensor mean = tensor(DType::kF32, {c.rows}, 1);
  const DeviceTensor rstd = tensor(DType::kF32, {c.rows}, 2);
  const DeviceTensor y = tensor(c.io, {c.rows, c.columns}, 3);
  const DeviceTensor gamma(backend, c.io, random_tensor({c.columns}, 6));
  const DeviceTensor beta(backend, c.io, random_tensor({c.columns}, 7));
  HostTensor<int32_t> rows({c.rows});
  for (int64_t i = 0; i < c.rows; ++i) rows[i] = static_cast<int32_t>(3 * i % 101 - 1);
  const DeviceTensor dropout_rows(backend, rows);
  Outcome stored = norm_forward_from(backend, c, How::kByTheOperation,
                                     {.matrix = y.view(), .dropout_rows = dropout_rows.view()});
  Outcome computed = norm_forward_from(backend, c, How::kWithoutY,
                                       {.matrix = sum.view(),
                                        .norm = {.mean = mean.view(),
                                                 .rstd = rstd.view(),
                                                 .gamma = gamma.view(),
                                                 .beta = beta.view()},
                                        .dropout_rows = dropout_rows.view()});
  stored.others.pop_back();
  computed.others.pop_back();
  EXPECT_EQ(computed, stored) << name(c.io) << ", " << c.rows << " x " << c.columns;
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
        expect_norm_of_norm(cpu(), c);
        for (const DType io : kIoTypes) {
          c.io = io;
          expect_norm(gpu(), c);
          expect_norm_of_norm(gpu(), c);
        }
      }
    }
  }
}

Outcome attention_backward(const TestBackend& backend, const Case& c, const Rounding& rounding,
                           bool wants_dbias, How how) {
  const Fp8Memory fp8(backend, rounding);
  const bool by_operation = how == How::kByTheOperation;
  const Results got =
      run(backend, c, Inputs(c), wants_dbias, nullptr, by_operation ? fp8.result() : Fp8Result{});
  if (!by_operation) {
    const DeviceTensor dqkv(backend, c.dtype, got.dqkv);
    backend.ops->run(quantize_to(fp8.result(), dqkv.view()));
    backend.wait();
  }
  Outcome outcome = fp8.outcome();
  outcome.others = {got.out.values, got.lse.values, got.dbias.values};
  return outcome;
}

/// Without saturation and with it, with and without dbias, with all live rows and fewer.
void expect_attention(Variant variant, Case c, DType format = DType::kE5M2) {
  c.padding = 32 - c.live() % 16;
  for (const DType io : dtypes(variant)) {
    for (const float probability : {0.0f, 0.1f}) {
      for (const bool saturates : {false, true}) {
        c.dtype = io;
        c.probability = probability;
        const Rounding rounding{c.tokens(), 3 * c.heads * c.head_size,
                                saturates ? c.live() - c.live() / 10 : c.live(), format,
                                saturates ? 131072.0f : 0.25f};
        const bool wants_dbias = saturates == (probability > 0.0f);
        const auto outcome = [&](How how) {
          return attention_backward(kernels(variant), c, rounding, wants_dbias, how);
        };
        const Outcome got = outcome(How::kByTheOperation);
        EXPECT_EQ(got, outcome(How::kByQuantize)) << c.text() << ", scale " << rounding.scale;
        if (!saturates || c.live() > 30) {  // of one token, all may be dropped
          EXPECT_EQ(got.saturated > 5, saturates) << c.text();
        }
        for (auto i = static_cast<size_t>(c.live() * rounding.columns); i < got.q.size(); ++i) {
          ASSERT_EQ(got.q[i], 0) << c.text() << ", byte " << i;
        }
      }
    }
  }
}

const std::vector<int64_t> kRagged = {1, 0, 33, 127, 7, 129, 200, 0, 257, 300, 512, 511, 64};

TEST_F(CudaFp8Result, OfAttentionIsThatOfQuantize) {
  for (const Variant variant : {Variant::kPersistent, Variant::kSplit, Variant::kGrouped}) {
    for (const int64_t head_size : {64, 32, 40}) {  // 40: followed by Quantize
      expect_attention(variant, {.lengths = kRagged, .heads = 2, .head_size = head_size});
    }
    for (const int64_t length : {1, 7, 33, 64, 511, 512}) {
      expect_attention(variant, {.lengths = {length}});
    }
    expect_attention(variant, {.lengths = {0, 0, 65}, .heads = 16});
    expect_attention(variant, {.lengths = kRagged, .heads = 2}, DType::kE4M3);
  }
}

/// More sequences than those whose sums the persistent kernel stores: with dbias, Quantize follows.
/// Heads of 28 are copied to wider ones.
TEST_F(CudaFp8Result, OfAttentionInOtherKernelsIsThatOfQuantize) {
  expect_attention(Variant::kPersistent, {.lengths = std::vector<int64_t>(520, 3), .heads = 2});
  expect_attention(Variant::kAuto, {.lengths = kRagged, .heads = 4, .head_size = 28});
}

}  // namespace
}  // namespace bertha::testing

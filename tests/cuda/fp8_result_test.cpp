// Operations that round their result to fp8 as they compute it give the bytes of Quantize after the
// operation in io.

#include "kernels/ops/fp8_result.h"

#include <gtest/gtest.h>

#include <bit>

#include "kernels/ops/attention.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/residual_ln.h"
#include "tests/cuda/attention_reference.h"
#include "tests/support/tolerance.h"

namespace bertha::testing {
namespace {

struct Outcome {
  std::vector<uint8_t> q;
  uint32_t amax_bits = 0;
  int64_t saturated = 0;
  std::vector<std::vector<float>> others;  // outputs that do not depend on the rounding

  bool operator==(const Outcome&) const = default;
};

/// Device memory of an Fp8Result.
class Fp8Memory {
 public:
  Fp8Memory(const TestBackend& backend, DType format, int64_t rows, int64_t columns, float scale)
      : format_(format),
        q_(backend, HostTensor<uint8_t>({rows, columns}, 0xAA)),
        scale_(backend, DType::kF32, HostTensor<float>({1}, scale)),
        amax_(backend, DType::kF32, HostTensor<float>({1}, 0.125f)),
        saturated_(backend, HostTensor<int64_t>({1}, 5)) {}

  Fp8Result result(int64_t live_rows) const {
    View q = q_.view();
    q.dtype = format_;
    return {.q = q,
            .scale = scale_.view(),
            .amax = amax_.view(),
            .saturated = saturated_.view(),
            .live_rows = live_rows};
  }
  Outcome outcome() const {
    return {.q = q_.values<uint8_t>().values,
            .amax_bits = std::bit_cast<uint32_t>(amax_.floats()[0]),
            .saturated = saturated_.values<int64_t>()[0],
            .others = {}};
  }

 private:
  DType format_;
  DeviceTensor q_, scale_, amax_, saturated_;
};

enum class How : uint8_t { kByTheOperation, kByQuantize };

struct NormCase {
  int64_t rows;
  int64_t columns;
  DType io;
  DType format;
  float probability;
};

Outcome norm_backward(const TestBackend& backend, const NormCase& c, How how) {
  const int64_t live_rows = c.rows - c.rows / 10;
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
  const DeviceTensor state(backend, random_state(kSeed, kStep));
  const bool drops = c.probability > 0.0f;
  // Some of the numbers, which are of order one, are beyond the largest.
  const float scale = c.format == DType::kE4M3 ? 512.0f : 65536.0f;
  const Fp8Memory fp8(backend, c.format, c.rows, c.columns, scale);
  const Fp8Result wanted = fp8.result(live_rows);
  backend.ops->run(ResidualLnBwd{.dy = dy.view(),
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
                                 .dropout = {.random = drops ? state.view() : View(),
                                             .probability = c.probability,
                                             .site = kSite},
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
  const Outcome got = norm_backward(backend, c, How::kByTheOperation);
  EXPECT_EQ(got, norm_backward(backend, c, How::kByQuantize))
      << name(c.io) << " to " << name(c.format) << ", " << c.rows << " x " << c.columns;
  if (c.rows > 100) {
    EXPECT_GT(got.saturated, 5);
  }
}

TEST(CudaFp8Result, OfResidualLnIsThatOfQuantize) {
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    for (const float probability : {0.0f, 0.1f}) {
      for (const auto& [rows, columns] :
           {std::pair<int64_t, int64_t>{0, 64}, {16, 16}, {144, 768}, {528, 1024}, {32, 4112}}) {
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

Outcome attention_backward(const TestBackend& backend, const Case& c, DType format, How how,
                           bool wants_dbias) {
  HostTensor<float> values = random_tensor({c.tokens(), 3, c.heads, c.head_size}, 1);
  // What stands in padding rows must not matter.
  std::fill(values.values.begin() + c.live() * 3 * c.heads * c.head_size, values.values.end(),
            std::numeric_limits<float>::quiet_NaN());
  const DeviceTensor qkv(backend, c.dtype, values);
  const DeviceTensor dout(backend, c.dtype, random_tensor({c.tokens(), c.heads, c.head_size}, 2));
  const DeviceTensor starts(backend, starts_of(c));
  const DeviceTensor state(backend, random_state(kSeed, kStep));
  const DeviceTensor out(backend, c.dtype, garbage_tensor({c.tokens(), c.heads, c.head_size}));
  const DeviceTensor lse(backend, DType::kF32, garbage_tensor({c.heads, c.tokens()}));
  const DeviceTensor dqkv(backend, c.dtype, garbage_tensor({c.tokens(), 3, c.heads, c.head_size}));
  const DeviceTensor dbias(backend, c.dtype, random_tensor({3 * c.heads * c.head_size}, 3));
  const DeviceTensor mask(backend,
                          HostTensor<uint8_t>({c.tokens(), c.heads, c.max_seq_tokens / 8}, 0x5A));
  const std::vector<SequenceGroup> groups = groups_of(c);
  const Dropout dropout{.random = state.view(), .probability = c.probability, .site = kSite};
  const float scale = format == DType::kE4M3 ? 512.0f : 65536.0f;
  const Fp8Memory fp8(backend, format, c.tokens(), 3 * c.heads * c.head_size, scale);
  const Fp8Result wanted = fp8.result(c.live());
  backend.ops->run(AttentionFwd{.qkv = qkv.view(),
                                .cu_seqlens = starts.view(),
                                .out = out.view(),
                                .lse = lse.view(),
                                .mask = mask.view(),
                                .groups = groups,
                                .dropout = dropout,
                                .max_seq_tokens = c.max_seq_tokens});
  backend.ops->run(AttentionBwd{.dout = dout.view(),
                                .qkv = qkv.view(),
                                .out = out.view(),
                                .lse = lse.view(),
                                .mask = mask.view(),
                                .cu_seqlens = starts.view(),
                                .dqkv = dqkv.view(),
                                .dbias = wants_dbias ? dbias.view() : View(),
                                .groups = groups,
                                .dropout = dropout,
                                .max_seq_tokens = c.max_seq_tokens,
                                .accumulate = c.accumulate,
                                .dqkv_fp8 = how == How::kByTheOperation ? wanted : Fp8Result{}});
  if (how == How::kByQuantize) backend.ops->run(quantize_to(wanted, dqkv.view()));
  Outcome outcome = fp8.outcome();
  outcome.others.push_back(dbias.floats().values);
  return outcome;
}

void expect_attention(const TestBackend& backend, const Case& c, DType format,
                      bool wants_dbias = true) {
  const Outcome got = attention_backward(backend, c, format, How::kByTheOperation, wants_dbias);
  EXPECT_EQ(got, attention_backward(backend, c, format, How::kByQuantize, wants_dbias))
      << c.text() << " to " << name(format);
  EXPECT_GT(got.saturated, 5);
}

TEST(CudaFp8Result, OfAttentionIsThatOfQuantize) {
  static const TestBackend grouped =
      make_gpu({.attention = CudaOptions::AttentionVariant::kGrouped});
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    for (const float probability : {0.0f, 0.1f}) {
      Case c{.lengths = {512, 0, 383, 129, 64, 33, 7, 1}, .padding = 7, .heads = 3};
      c.probability = probability;
      c.dtype = DType::kF32;
      expect_attention(cpu(), c, format);
      for (const DType io : {DType::kF16, DType::kBF16}) {
        c.dtype = io;
        expect_attention(gpu(), c, format);
        expect_attention(gpu(), c, format, false);
        expect_attention(grouped, c, format);
      }
    }
  }
}

}  // namespace
}  // namespace bertha::testing

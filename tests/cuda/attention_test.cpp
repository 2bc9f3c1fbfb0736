#include "kernels/ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "kernels/base/dropout_bits.h"
#include "kernels/base/tests/tolerance.h"
#include "tests/cuda/attention_reference.h"

namespace bertha::testing {
namespace {

/// One batch on the GPU, forward and backward.
struct Results {
  HostTensor<float> out;
  HostTensor<float> lse;
  HostTensor<uint8_t> mask;
  HostTensor<float> dqkv;
  HostTensor<float> dbias;
};

struct Inputs {
  HostTensor<float> qkv;
  HostTensor<float> dout;
  HostTensor<float> dbias;  // what is there before

  explicit Inputs(const Case& c)
      : qkv(rounded_to(c.dtype, random_tensor({c.tokens(), 3, c.heads, c.head_size}, 1))),
        dout(rounded_to(c.dtype, random_tensor({c.tokens(), c.heads, c.head_size}, 2))),
        dbias(c.accumulate == Accumulate::kYes
                  ? rounded_to(c.dtype, random_tensor({3 * c.heads * c.head_size}, 3))
                  : garbage_tensor({3 * c.heads * c.head_size})) {
    // What stands in padding rows must not matter: this is the most that the contract allows.
    const auto poison = [&](HostTensor<float>& tensor, int64_t row_elements) {
      std::fill(tensor.values.begin() + c.live() * row_elements, tensor.values.end(), 0x1p15f);
    };
    poison(qkv, 3 * c.heads * c.head_size);
    poison(dout, c.heads * c.head_size);
  }
};

Results run(const TestBackend& backend, const Case& c, const Inputs& inputs,
            bool wants_dbias = true) {
  const DeviceTensor qkv(backend, c.dtype, inputs.qkv);
  const DeviceTensor dout(backend, c.dtype, inputs.dout);
  const DeviceTensor starts(backend, starts_of(c));
  const DeviceTensor state(backend, random_state(kSeed, kStep));
  const DeviceTensor out(backend, c.dtype, garbage_tensor({c.tokens(), c.heads, c.head_size}));
  const DeviceTensor lse(backend, DType::kF32, garbage_tensor({c.heads, c.tokens()}));
  const DeviceTensor dqkv(backend, c.dtype, garbage_tensor({c.tokens(), 3, c.heads, c.head_size}));
  const DeviceTensor dbias(backend, c.dtype, inputs.dbias);
  const DeviceTensor mask(backend,
                          HostTensor<uint8_t>({c.tokens(), c.heads, c.max_seq_tokens / 8}, 0x5A));
  const std::vector<SequenceGroup> groups = groups_of(c);
  const Dropout dropout{.random = state.view(), .probability = c.probability, .site = kSite};
  backend.ops->run(AttentionFwd{.qkv = qkv.view(),
                                .cu_seqlens = starts.view(),
                                .out = out.view(),
                                .lse = lse.view(),
                                .mask = mask.view(),
                                .groups = groups,
                                .dropout = dropout,
                                .max_seq_tokens = c.max_seq_tokens,
                                .scale = static_cast<float>(c.scale())});
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
                                .scale = static_cast<float>(c.scale()),
                                .accumulate = c.accumulate});
  return {out.floats(), lse.floats(), mask.values<uint8_t>(), dqkv.floats(), dbias.floats()};
}

void expect_mask(const Case& c, const HostTensor<uint8_t>& mask) {
  int64_t first = 0;
  for (const int64_t length : c.lengths) {
    for (int64_t token = first; token < first + length; ++token) {
      for (int64_t head = 0; head < c.heads; ++head) {
        for (int64_t key = 0; key < length; ++key) {
          const int64_t element = (token * c.heads + head) * c.max_seq_tokens + key;
          const bool kept = (mask[element / 8] >> (element % 8) & 1) != 0;
          ASSERT_EQ(kept, is_kept(kSeed, kStep, kSite, element, c.probability))
              << c.text() << ": token " << token << ", head " << head << ", key " << key;
        }
      }
    }
    first += length;
  }
}

/// dbias is the sum of what dqkv has, as it was stored: only the sum itself rounds.
void expect_column_sums(const Case& c, const Inputs& inputs, const Results& got) {
  const auto columns = static_cast<size_t>(3 * c.heads * c.head_size);
  std::vector<double> sums(columns, 0.0);
  std::vector<double> magnitudes(columns, 0.0);
  const auto add = [&](size_t column, float value) {
    sums[column] += static_cast<double>(value);
    magnitudes[column] += static_cast<double>(std::abs(value));
  };
  for (size_t i = 0; i < got.dqkv.values.size(); ++i) add(i % columns, got.dqkv.values[i]);
  for (size_t column = 0; column < columns; ++column) {
    if (c.accumulate == Accumulate::kYes) add(column, inputs.dbias.values[column]);
    ASSERT_NEAR(static_cast<double>(got.dbias.values[column]), sums[column],
                tolerance::stored_column_sum(rounding(c.dtype), sums[column], magnitudes[column],
                                             c.tokens()))
        << c.text() << ": dbias, column " << column;
  }
}

/// Part 0, 1, 2 of a [T, 3, A, D] tensor: query, key, value.
template <class T>
std::vector<T> part_of(const Case& c, const std::vector<T>& qkv, int64_t part) {
  const auto width = static_cast<size_t>(c.heads * c.head_size);
  std::vector<T> values;
  for (size_t token = 0; token < static_cast<size_t>(c.tokens()); ++token) {
    const auto from =
        qkv.begin() + static_cast<std::ptrdiff_t>((3 * token + static_cast<size_t>(part)) * width);
    values.insert(values.end(), from, from + static_cast<std::ptrdiff_t>(width));
  }
  return values;
}

using Variant = CudaOptions::AttentionVariant;

/// The kernels of one variant, made once per program.
const TestBackend& kernels(Variant variant) {
  static std::map<Variant, TestBackend> made;
  if (variant == Variant::kAuto) return gpu();
  const auto found = made.find(variant);
  if (found != made.end()) return found->second;
  return made.emplace(variant, make_gpu({.attention = variant})).first->second;
}

/// Element types that a variant serves.
std::vector<DType> dtypes(Variant variant) {
  if (variant == Variant::kGrouped) return {std::begin(kIoTypes), std::end(kIoTypes)};
  return {DType::kF16, DType::kBF16};
}

void expect_matches_reference(Variant variant, const Case& c) {
  const Inputs inputs(c);
  const Reference want = reference_of(c, inputs.qkv, inputs.dout);
  const Results got = run(kernels(variant), c, inputs);
  const double u = rounding(c.dtype);
  expect_close(got.out.values, want.out, tolerance::attention_out(u), c.text() + ": out");
  expect_close(got.lse.values, want.lse, tolerance::kAttentionF32, c.text() + ": lse", 8.0);
  if (c.probability > 0.0f) expect_mask(c, got.mask);
  constexpr const char* kNames[] = {": dquery", ": dkey", ": dvalue"};
  for (int64_t part = 0; part < 3; ++part) {
    const std::vector<double> wanted = part_of(c, want.dqkv, part);
    double magnitude = largest_magnitude(wanted);
    // Inputs are at most 2. In a sequence of one token the two terms of dS cancel to nothing.
    if (part < 2) magnitude = std::max(magnitude, 2.0 * want.largest_dscore_term);
    const double bound = part < 2 ? tolerance::attention_dscore(u) : tolerance::attention_out(u);
    expect_close(part_of(c, got.dqkv.values, part), wanted, bound, c.text() + kNames[part],
                 magnitude);
  }
  expect_column_sums(c, inputs, got);
  const int64_t width = c.heads * c.head_size;
  for (int64_t i = c.live() * width; i < c.tokens() * width; ++i) ASSERT_EQ(got.out[i], 0.0f);
  for (int64_t i = c.live() * 3 * width; i < c.tokens() * 3 * width; ++i) {
    ASSERT_EQ(got.dqkv[i], 0.0f);
  }
}

const std::vector<int64_t> kLengths = {0,   1,   7,   33,  64,  65,  127, 128,
                                       129, 200, 256, 257, 383, 384, 511, 512};

class CudaAttention : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (GetParam() != Variant::kGrouped && !runs_sm90a_kernels(*gpu().device)) {
      GTEST_SKIP() << "portable kernels run here";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, CudaAttention,
                         ::testing::Values(Variant::kGrouped, Variant::kPersistent,
                                           Variant::kSplit),
                         [](const auto& variant) {
                           return variant.param == Variant::kGrouped      ? "Grouped"
                                  : variant.param == Variant::kPersistent ? "Persistent"
                                                                          : "Split";
                         });

TEST_P(CudaAttention, EveryLengthAloneMatchesF64) {
  for (const int64_t length : kLengths) {
    for (const DType dtype : dtypes(GetParam())) {
      expect_matches_reference(
          GetParam(), {.lengths = {length}, .padding = 5, .dtype = dtype, .probability = 0.1f});
    }
  }
}

TEST_P(CudaAttention, MixedBatchesMatchF64) {
  for (const DType dtype : dtypes(GetParam())) {
    for (const float probability : {0.0f, 0.1f, 0.5f}) {
      expect_matches_reference(GetParam(),
                               {.lengths = {1, 0, 33, 127, 7, 129, 200, 0, 257, 300, 512, 511, 64},
                                .padding = 37,
                                .heads = 2,
                                .dtype = dtype,
                                .probability = probability});
    }
  }
}

TEST(CudaGroupedAttention, HeadSizesMatchF64) {
  for (const DType dtype : kIoTypes) {
    for (const int64_t head_size : {1, 7, 32, 80, 128}) {
      expect_matches_reference(Variant::kGrouped, {.lengths = {0, 65, 97, 130, 33, 1},
                                                   .padding = 3,
                                                   .heads = 3,
                                                   .head_size = head_size,
                                                   .max_seq_tokens = 160,
                                                   .dtype = dtype,
                                                   .probability = 0.1f});
    }
  }
}

TEST_P(CudaAttention, SixteenHeadsOfShortSequencesMatchF64) {
  for (const DType dtype : dtypes(GetParam())) {
    expect_matches_reference(GetParam(), {.lengths = {128, 17, 90, 64, 100},
                                          .padding = 113,
                                          .heads = 16,
                                          .max_seq_tokens = 128,
                                          .dtype = dtype,
                                          .probability = 0.1f});
  }
}

/// More parts of sequences than the list of the persistent kernels sorts.
TEST_P(CudaAttention, ManyShortSequencesMatchF64) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 1100; ++i) lengths.push_back(1 + i % 3);
  lengths[500] = 0;
  lengths[1099] = 70;
  for (const DType dtype : dtypes(GetParam())) {
    expect_matches_reference(
        GetParam(),
        {.lengths = lengths, .padding = 3, .heads = 2, .dtype = dtype, .probability = 0.1f});
  }
}

/// What the tensor copy cannot take, other kernels serve: masks of heads that begin between 16-byte
/// words, with 60 bytes a token and with 16.
TEST(CudaAutoAttention, MasksOffTheGridMatchF64) {
  for (const DType dtype : kIoTypes) {
    expect_matches_reference(Variant::kAuto, {.lengths = {0, 65, 97, 130, 33, 1},
                                              .padding = 3,
                                              .heads = 3,
                                              .max_seq_tokens = 160,
                                              .dtype = dtype,
                                              .probability = 0.1f});
    expect_matches_reference(Variant::kAuto, {.lengths = {64, 0, 17, 33, 1},
                                              .padding = 3,
                                              .heads = 2,
                                              .max_seq_tokens = 64,
                                              .dtype = dtype,
                                              .probability = 0.1f});
  }
}

TEST(CudaGroupedAttention, LongSequencesMatchF64) {
  for (const DType dtype : kIoTypes) {
    expect_matches_reference(
        Variant::kGrouped,
        {.lengths = {700, 1000}, .max_seq_tokens = 1024, .dtype = dtype, .probability = 0.1f});
  }
}

/// Scores far from 0 and of both signs: exp overflows where a maximum is not subtracted, and keys
/// behind the sequence (whose score would be 0) would win over all others.
TEST_P(CudaAttention, LargeNegativeScoresStayFinite) {
  for (const DType dtype : dtypes(GetParam())) {
    const Case c{.lengths = {70, 129}, .padding = 1, .dtype = dtype, .probability = 0.1f};
    Inputs inputs(c);
    for (int64_t token = 0; token < c.live(); ++token) {
      inputs.qkv[token * 3 * 64] = 50.0f;         // query
      inputs.qkv[token * 3 * 64 + 64] = -100.0f;  // key: scores near -625
    }
    const Reference want = reference_of(c, inputs.qkv, inputs.dout);
    const Results got = run(kernels(GetParam()), c, inputs);
    // Inner products near 5,000 are sums of f32 with a rounding of 2^-12 each time; some twenty of
    // them in a random walk, times scale, are the relative error of a probability.
    const double u = rounding(c.dtype) + std::ldexp(1.0, -12);
    expect_close(got.out.values, want.out, tolerance::attention_out(u), c.text() + ": out");
    for (const float value : got.dqkv.values) ASSERT_TRUE(std::isfinite(value)) << c.text();
  }
}

/// Each 64 keys outweigh all before them by e^60, for every third query.
TEST_P(CudaAttention, ScoresThatGrowAlongTheKeysMatchF64) {
  for (const DType dtype : dtypes(GetParam())) {
    for (const float probability : {0.0f, 0.1f}) {
      const Case c{.lengths = {300, 129}, .padding = 1, .dtype = dtype, .probability = probability};
      Inputs inputs(c);
      int64_t token = 0;
      for (const int64_t length : c.lengths) {
        for (int64_t row = 0; row < length; ++row, ++token) {
          inputs.qkv[token * 3 * 64] = row % 3 == 0 ? 8.0f : 0.125f;
          inputs.qkv[token * 3 * 64 + 64] = 60.0f * static_cast<float>(row / 64);
        }
      }
      const Reference want = reference_of(c, inputs.qkv, inputs.dout);
      const Results got = run(kernels(GetParam()), c, inputs);
      // Inner products near 2,000, as above.
      const double u = rounding(c.dtype) + std::ldexp(1.0, -12);
      expect_close(got.out.values, want.out, tolerance::attention_out(u), c.text() + ": out");
      expect_close(got.lse.values, want.lse, tolerance::kAttentionF32, c.text() + ": lse");
      for (const float value : got.dqkv.values) ASSERT_TRUE(std::isfinite(value)) << c.text();
    }
  }
}

/// With dropout the persistent backward reads masks of widths by 128 only: auto goes on grouped,
/// and who asks for it is refused by the forward call already.
TEST(CudaAttentionWidths, WithDropoutAutoServesEveryWidthAndPersistentIsRefused) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const int64_t width : {64, 128, 192, 320}) {
      const Case c{.lengths = {width, 1, 0, 33, width - 7},
                   .padding = 5,
                   .max_seq_tokens = width,
                   .dtype = dtype,
                   .probability = 0.1f};
      expect_matches_reference(Variant::kAuto, c);
      if (width == 128 || !runs_sm90a_kernels(*gpu().device)) continue;
      EXPECT_THROW(run(kernels(Variant::kPersistent), c, Inputs(c)), Error) << c.text();
      EXPECT_THROW(run(kernels(Variant::kSplit), c, Inputs(c)), Error) << c.text();
    }
  }
}

/// Any number of sequences: more of them than the persistent kernel is asked to sum on the way, and
/// so many that each of its thread blocks has many items; empty ones first, last and in between.
TEST_P(CudaAttention, BiasGradientIsTheSumOfTheRows) {
  for (const DType dtype : dtypes(GetParam())) {
    for (const int64_t seqs : {1, 90, 512, 513}) {
      std::vector<int64_t> lengths;
      for (int64_t i = 1; i < seqs; ++i) lengths.push_back(i % 7 == 1 ? 0 : i * 7 % 23);
      lengths.push_back(seqs == 90 ? 0 : 449);
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        const Case c{.lengths = lengths,
                     .padding = 17,
                     .heads = 2,
                     .dtype = dtype,
                     .probability = 0.1f,
                     .accumulate = accumulate};
        const Inputs inputs(c);
        expect_column_sums(c, inputs, run(kernels(GetParam()), c, inputs));
      }
    }
  }
}

using CudaSplitAttention = NeedsSm90a;

/// Parts of a sequence are computed as the whole is, but for the order in which dQ is summed up.
TEST_F(CudaSplitAttention, OnlyTheQueryGradientDiffersFromWholeItems) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Case c{.lengths = {512, 0, 449, 129, 128, 300, 1, 64},
                 .padding = 31,
                 .heads = 16,
                 .dtype = dtype,
                 .probability = 0.1f};
    const Inputs inputs(c);
    const Results whole = run(kernels(Variant::kPersistent), c, inputs);
    const Results split = run(kernels(Variant::kSplit), c, inputs);
    EXPECT_EQ(split.out.values, whole.out.values);
    EXPECT_EQ(split.lse.values, whole.lse.values);
    EXPECT_EQ(split.mask.values, whole.mask.values);
    for (const int64_t part : {1, 2}) {
      EXPECT_EQ(part_of(c, split.dqkv.values, part), part_of(c, whole.dqkv.values, part));
    }
  }
}

/// 132 SMs: auto splits backward up to 50,688 tokens of heads.
TEST_F(CudaSplitAttention, AutoTakesItForFewTokensAndNotForMany) {
  const auto expect_same = [](Variant variant, const std::vector<int64_t>& lengths) {
    const Case c{.lengths = lengths, .heads = 16, .probability = 0.1f};
    const Inputs inputs(c);
    EXPECT_EQ(run(kernels(Variant::kAuto), c, inputs).dqkv.values,
              run(kernels(variant), c, inputs).dqkv.values)
        << c.text();
  };
  expect_same(Variant::kSplit, {512, 300, 150, 62});
  expect_same(Variant::kPersistent, std::vector<int64_t>(7, 512));
}

TEST_P(CudaAttention, WithoutBiasGradientTheRestIsTheSame) {
  const Case c{.lengths = {512, 0, 129, 60}, .padding = 31, .heads = 3, .probability = 0.1f};
  const Inputs inputs(c);
  const Results with = run(kernels(GetParam()), c, inputs);
  const Results without = run(kernels(GetParam()), c, inputs, false);
  EXPECT_EQ(with.dqkv.values, without.dqkv.values);
  EXPECT_EQ(without.dbias.values, inputs.dbias.values);
}

TEST_P(CudaAttention, AnEmptyBatchIsANoOp) {
  expect_matches_reference(GetParam(), {.lengths = {}, .padding = 0});
  expect_matches_reference(GetParam(), {.lengths = {}, .padding = 9});
  expect_matches_reference(GetParam(), {.lengths = {0, 0}, .padding = 9, .probability = 0.1f});
  expect_matches_reference(GetParam(), {.lengths = {}, .accumulate = Accumulate::kNo});
  expect_matches_reference(GetParam(),
                           {.lengths = {0}, .padding = 9, .accumulate = Accumulate::kNo});
}

TEST_P(CudaAttention, TwoRunsAreBitwiseEqual) {
  const Case c{
      .lengths = {512, 400, 300, 129, 128, 60}, .padding = 31, .heads = 16, .probability = 0.1f};
  const Inputs inputs(c);
  const Results first = run(kernels(GetParam()), c, inputs);
  const Results second = run(kernels(GetParam()), c, inputs);
  EXPECT_EQ(first.out.values, second.out.values);
  EXPECT_EQ(first.lse.values, second.lse.values);
  EXPECT_EQ(first.mask.values, second.mask.values);
  EXPECT_EQ(first.dqkv.values, second.dqkv.values);
  EXPECT_EQ(first.dbias.values, second.dbias.values);
}

}  // namespace
}  // namespace bertha::testing

#include "kernels/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda/attention_run.h"

namespace bertha::testing {
namespace {

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
    for (const int64_t head_size : {1, 7, 32, 80, 96, 128}) {
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

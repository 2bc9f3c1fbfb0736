// Attention of head sizes other than 64: as narrow parts of wider tiles, or copied first.

#include <gtest/gtest.h>

#include "tests/cuda/attention_run.h"

namespace bertha::testing {
namespace {

class CudaAttentionHeads : public ::testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    if (GetParam() != Variant::kGrouped && !runs_sm90a_kernels(*gpu().device)) {
      GTEST_SKIP() << "portable kernels run here";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, CudaAttentionHeads,
                         ::testing::Values(Variant::kGrouped, Variant::kPersistent,
                                           Variant::kSplit));

/// Heads of fewer columns than tiles, those that are copied (12, 26) among them; with and without
/// dropout, into dbias or on top of it.
TEST_P(CudaAttentionHeads, MatchF64) {
  for (const int64_t head_size : {8, 12, 24, 26, 32, 40, 56}) {
    for (const DType dtype : dtypes(GetParam())) {
      for (const float probability : {0.0f, 0.1f}) {
        const int64_t longest = head_size == 26 ? 511 : 150;  // the reference takes its square
        expect_matches_reference(
            GetParam(), {.lengths = {0, longest, 1, 7, 33, 129, 0, 64},
                         .padding = 13,
                         .heads = 3,
                         .head_size = head_size,
                         .dtype = dtype,
                         .probability = probability,
                         .accumulate = probability > 0 ? Accumulate::kYes : Accumulate::kNo});
      }
    }
  }
}

TEST_P(CudaAttentionHeads, OfManySequencesHaveTheirBiasGradientAndAreRepeatable) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 513; ++i) lengths.push_back(i % 7 == 1 ? 0 : 1 + i * 7 % 23);
  lengths[90] = 449;
  for (const size_t seqs : {size_t{91}, lengths.size()}) {
    for (const int64_t head_size : {24, 26}) {
      const Case c{.lengths = {lengths.begin(), lengths.begin() + static_cast<int64_t>(seqs)},
                   .padding = 17,
                   .heads = 4,
                   .head_size = head_size,
                   .probability = 0.1f};
      const Inputs inputs(c);
      const Results first = run(kernels(GetParam()), c, inputs);
      expect_column_sums(c, inputs, first);
      const Results second = run(kernels(GetParam()), c, inputs);
      EXPECT_EQ(first.dqkv.values, second.dqkv.values);
      EXPECT_EQ(first.dbias.values, second.dbias.values);
    }
  }
}

TEST(CudaAutoAttention, WideHeadsMatchF64) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const int64_t head_size : {65, 72, 96, 100, 128}) {
      for (const float probability : {0.0f, 0.1f}) {
        const int64_t longest = head_size == 96 ? 511 : 150;
        expect_matches_reference(
            Variant::kAuto, {.lengths = {0, longest, 1, 7, 33, 129, 0, 64},
                             .padding = 13,
                             .heads = 3,
                             .head_size = head_size,
                             .dtype = dtype,
                             .probability = probability,
                             .accumulate = probability > 0 ? Accumulate::kYes : Accumulate::kNo});
      }
    }
  }
}

/// The blocks of the one launch find their sequences among few and many, empty ones first, last and
/// in between; more sequences than a grid has blocks along y or z.
TEST(CudaAutoAttention, WideHeadsOfManySequencesMatchF64) {
  for (const int64_t seqs : {1, 2, 32, 33, 1025, 70'000}) {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < seqs; ++i) {
      lengths.push_back(seqs > 1 && i % 3 == 0 ? 0 : seqs > 2000 ? 1 + i % 2 : 1 + i * 7 % 130);
    }
    if (seqs > 2) lengths[static_cast<size_t>(seqs) / 2] = 512;
    lengths.back() = seqs % 2 == 1 ? 65 : 0;
    expect_matches_reference(Variant::kAuto, {.lengths = lengths,
                                              .padding = 70,
                                              .heads = 1,
                                              .head_size = 72,
                                              .probability = 0.1f,
                                              .accumulate = Accumulate::kNo});
  }
}

using CudaAttentionGraphs = NeedsSm90a;

/// A graph of one batch serves another one: persistent kernels, copied heads, grouped ones.
TEST_F(CudaAttentionGraphs, ServeOtherLengths) {
  for (const int64_t head_size : {26, 32, 64, 96, 100}) {
    for (const int64_t max_seq_tokens : {512, 320}) {
      Case recorded{.lengths = {17, 0, 300, 260},
                    .padding = 24,
                    .heads = 2,
                    .head_size = head_size,
                    .max_seq_tokens = max_seq_tokens,
                    .probability = 0.1f,
                    .accumulate = Accumulate::kNo};
      Case launched = recorded;
      launched.lengths = {320, 250, 1, 0};
      launched.padding = 30;
      ASSERT_EQ(recorded.tokens(), launched.tokens());
      expect_matches_reference(Variant::kAuto, launched, &recorded);
    }
  }
}

}  // namespace
}  // namespace bertha::testing

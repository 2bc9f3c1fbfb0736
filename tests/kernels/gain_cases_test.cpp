#include "kernels/bench/gain_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/bench/op_bench.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/lamb_state.h"
#include "tests/support/tolerance.h"

namespace bertha {
namespace {

constexpr int64_t kTokens = 48;

BenchModel small_model() {
  return {.hidden = 16,
          .heads = 2,
          .feed_forward = 32,
          .classes = 50,
          .vocab_rows = 56,
          .positions = 64,
          .segment_types = 2,
          .mask_width = 64,
          .parameters = 320};
}

/// Sequences of 20, 20 and 8 tokens in two groups.
BenchBatch small_batch() {
  BenchBatch batch;
  batch.name = "mixed";
  batch.tokens = kTokens;
  batch.word_ids.resize(kTokens);
  batch.cu_seqlens = {0, 20, 40, 48};
  batch.groups = {{.num_seqs = 2, .num_tokens = 40, .longest_seq_tokens = 20, .bucket_tokens = 32},
                  {.first_seq = 2,
                   .num_seqs = 1,
                   .first_token = 40,
                   .num_tokens = 8,
                   .longest_seq_tokens = 8,
                   .bucket_tokens = 16}};
  return batch;
}

std::vector<GainCase> small_cases() {
  const std::vector<LambSegment> tensors{{.tensor = 0, .begin = 0, .end = 128},
                                         {.tensor = 1, .begin = 128, .end = 150, .decay = false},
                                         {.tensor = 2, .begin = 192, .end = 320}};
  return make_gain_cases(small_model(), small_batch(), tensors);
}

class GainCasesTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  std::unique_ptr<Ops> ops_ = make_cpu_ops(*device_, *stream_);
  OpBench bench_{{.device = device_.get(), .stream = stream_.get(), .ops = ops_.get()}};
};

TEST_F(GainCasesTest, BothVariantsLeaveTheSameResults) {
  int compared = 0;
  for (const GainCase& made : small_cases()) {
    const auto off = bench_.values_after(made.off, made.results);
    const auto on = bench_.values_after(made.on, made.results);
    for (size_t r = 0; r < made.results.size(); ++r) {
      const std::string name = made.row + " " + made.on.tensors[made.results[r]].name;
      const std::vector<float>& values = on[r].values;
      const std::vector<float>& others = off[r].values;
      ASSERT_EQ(values.size(), others.size());
      double largest = 0;
      for (const float value : values) largest = std::max(largest, std::abs(double{value}));
      EXPECT_GT(largest, 0) << name;
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], others[i], tolerance::kRowF32 * largest) << name << " " << i;
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, 10);  // dx three times, five of LayerNorm, two of LAMB
}

TEST_F(GainCasesTest, EachIsTimed) {
  for (const GainCase& made : small_cases()) {
    EXPECT_EQ(bench_.run(made.off, 3).times_us.size(), 3u) << made.row;
    EXPECT_EQ(bench_.run(made.on, 3).times_us.size(), 3u) << made.row;
    EXPECT_GT(made.calls_per_layer + made.calls_per_step, 0) << made.row;
  }
}

TEST_F(GainCasesTest, CasesOfOwnKernelsAreComparedAndCountTheRowsOfAWord) {
  BenchBatch batch = small_batch();
  batch.word_ids = {5, 7, 5, 5};
  const std::vector<GainCase> cases = make_gain_kernel_cases(small_model(), batch, 1, *stream_);
  ASSERT_EQ(cases.size(), 5u);
  for (const GainCase& made : cases) {
    const bool is_embedding = made.row.starts_with("embedding-");
    EXPECT_TRUE(made.is_compared) << made.row;
    EXPECT_EQ(made.calls_per_micro_batch, is_embedding ? 1 : 0) << made.row;
    EXPECT_EQ(made.additions.size(), is_embedding ? 56u : 0u) << made.row;
  }
  EXPECT_EQ(cases[0].additions[5], 3);
  EXPECT_EQ(cases[0].additions[7], 1);
  EXPECT_EQ(cases[0].additions[6], 0);
}

TEST_F(GainCasesTest, DisagreementIsRelativeToWhatRoundingAllows) {
  // Three rows of two, with 1, 16 and no additions.
  const auto leaves = [](std::vector<float> values) -> OpCase {
    return {.operation = "leaves",
            .shape = {},
            .tensors = {{.name = "values", .extents = {3, 2}}},
            .call = [values](const OpCall& c) { std::ranges::copy(values, c[0].as<float>()); }};
  };
  const auto of = [&](const std::vector<float>& off, const std::vector<float>& on) {
    return disagreement(bench_, {.row = "leaves",
                                 .off = leaves(off),
                                 .on = leaves(on),
                                 .results = {0},
                                 .additions = {1, 16, 0}});
  };
  constexpr float kUlp = 0x1p-23f;
  EXPECT_EQ(of({1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}), 0);
  // Allowed: 4 (sqrt(16) + 1) half units in the last place of the row's largest, 10 of 1.
  EXPECT_NEAR(of({1, 2, 1, 0.5f, 5, 6}, {1, 2, 1, 0.5f + 5 * kUlp, 5, 6}), 0.5, 1e-6);
  EXPECT_NEAR(of({1, 2, 1, 0.5f, 5, 6}, {1, 2, 1, 0.5f + 20 * kUlp, 5, 6}), 2, 1e-6);
  EXPECT_EQ(of({1, 2, 3, 4, 5, 6}, {1, 2 + 2 * kUlp, 3, 4, 5, 6}), HUGE_VAL);
  EXPECT_EQ(of({1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6 + 4 * kUlp}), HUGE_VAL);
  EXPECT_EQ(of({1, 2, NAN, 4, 5, 6}, {1, 2, 3, 4, 5, 6}), HUGE_VAL);
  EXPECT_EQ(of({0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}), HUGE_VAL);
}

}  // namespace
}  // namespace bertha

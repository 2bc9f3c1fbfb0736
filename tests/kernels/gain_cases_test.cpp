#include "kernels/bench/gain_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "kernels/bench/op_bench.h"
#include "kernels/cpu/cpu_backend.h"
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
  /// The values of f32 tensors after one call.
  std::map<std::string, std::vector<float>> after(const OpCase& op,
                                                  const std::vector<size_t>& which) {
    std::map<std::string, std::vector<float>> found;
    bench_.run_once(op, [&](const OpCall& c) {
      for (const size_t i : which) {
        const auto* values = c.tensors[i].as<float>();
        found[op.tensors[i].name] = {values, values + c.tensors[i].elements()};
      }
    });
    return found;
  }

  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  std::unique_ptr<Ops> ops_ = make_cpu_ops(*device_, *stream_);
  OpBench bench_{{.device = device_.get(), .stream = stream_.get(), .ops = ops_.get()}};
};

TEST_F(GainCasesTest, BothVariantsLeaveTheSameResults) {
  int compared = 0;
  for (const GainCase& made : small_cases()) {
    const auto off = after(made.off, made.results);
    for (const auto& [name, values] : after(made.on, made.results)) {
      const std::vector<float>& others = off.at(name);
      ASSERT_EQ(values.size(), others.size());
      double largest = 0;
      for (const float value : values) largest = std::max(largest, std::abs(double{value}));
      EXPECT_GT(largest, 0) << made.row << " " << name;
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], others[i], tolerance::kRowF32 * largest)
            << made.row << " " << name << " " << i;
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

TEST(BatchNormBytes, BitsTakeASixteenthOfY) {
  const BatchNormBytes bytes = batch_norm_bytes(128, DType::kF16);
  EXPECT_NEAR(bytes.with_y_mb / bytes.with_bits_mb, 8 / 6.125, 1e-12);
  EXPECT_NEAR(bytes.with_y_mb, 8 * 25.690112, 1e-6);
}

}  // namespace
}  // namespace bertha

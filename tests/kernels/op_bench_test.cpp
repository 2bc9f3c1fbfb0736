#include "kernels/base/bench/op_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/base/tests/matchers.h"
#include "kernels/bench/gemm_roof.h"
#include "kernels/bench/op_cases.h"
#include "kernels/cpu/cpu_backend.h"

namespace bertha {
namespace {

class OpBenchTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = make_cpu_device(1);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  std::unique_ptr<Ops> ops_ = make_cpu_ops(*device_, *stream_);
  OpBench<Ops> bench_{{.device = device_.get(),
                       .stream = stream_.get(),
                       .ops = ops_.get(),
                       .make_reference = make_cpu_ops}};
};

BenchModel tiny_model() {
  return {.hidden = 16,
          .heads = 2,
          .feed_forward = 32,
          .classes = 21,
          .vocab_rows = 24,
          .positions = 40,
          .segment_types = 2,
          .mask_width = 64,
          .parameters = 5000,
          .hidden_dropout = 0.1f,
          .attention_dropout = 0.2f};
}

/// 1,200 live tokens in 30 sequences of 40, of 1,216 rows: more than the reference computes.
BenchBatch tiny_batch() {
  BenchBatch batch;
  batch.name = "all 40";
  batch.tokens = 1200;
  batch.masked = 30;
  batch.cu_seqlens = {0};
  for (int32_t t = 0; t < 1216; ++t) {
    const bool live = t < 1200;
    batch.word_ids.push_back(live ? t * 7 % 21 : 0);
    batch.segment_ids.push_back(live ? t % 2 : 0);
    batch.position_ids.push_back(live ? t % 40 : 0);
    batch.rows_by_word.push_back(live ? t : -1);
  }
  std::stable_sort(
      batch.rows_by_word.begin(), batch.rows_by_word.begin() + 1200, [&](int32_t a, int32_t b) {
        return batch.word_ids[static_cast<size_t>(a)] < batch.word_ids[static_cast<size_t>(b)];
      });
  for (int32_t b = 0; b < 30; ++b) {
    batch.cu_seqlens.push_back(40 * (b + 1));
    batch.masked_positions.push_back(40 * b + 3);
    batch.masked_labels.push_back(b % 21);
  }
  batch.masked_positions.resize(32, -1);
  batch.masked_labels.resize(32, -1);
  batch.groups = {
      {.num_seqs = 30, .num_tokens = 1200, .longest_seq_tokens = 40, .bucket_tokens = 128}};
  return batch;
}

TEST_F(OpBenchTest, EveryOperationAtFullSizeAgreesWithItsLeadingPart) {
  std::set<std::string> operations;
  for (const OpCase& op : make_op_cases(tiny_model(), {tiny_batch()})) {
    const OpResult result = bench_.run(op, 2);
    EXPECT_LE(result.error, 1) << op.operation << ' ' << op.shape << ", " << result.worst;
    EXPECT_FALSE(result.checked.empty()) << op.operation;
    EXPECT_GT(result.bytes, 0) << op.operation;
    operations.insert(op.operation);
  }
  EXPECT_THAT(
      operations,
      ElementsAre("activation_bwd", "adamw_step", "attention_bwd", "attention_fwd", "cross_entropy",
                  "embedding_bwd", "embedding_fwd", "gather_rows", "lamb_apply", "lamb_moments",
                  "lamb_step", "layer_norm_bwd", "layer_norm_fwd", "linear_bwd_data",
                  "linear_bwd_weight", "linear_fwd", "quantize", "residual_ln_bwd",
                  "residual_ln_fwd", "scatter_add_rows", "sum_of_squares"));
}

TEST_F(OpBenchTest, TheRoofOfProductsIsARate) { EXPECT_GT(gemm_roof(bench_, 1e6, 2), 1e6); }

}  // namespace
}  // namespace bertha

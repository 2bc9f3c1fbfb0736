#include "harness/train/session.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/data/example_data.h"

namespace bertha {
namespace {

TEST(DeriveSeed, GivesEveryPurposeAndRankItsOwn) {
  std::set<uint64_t> seen;
  int64_t count = 0;
  for (const uint64_t seed : {0ull, 1ull, 2ull, ~0ull}) {
    for (uint64_t purpose = 0; purpose < 4; ++purpose) {
      for (uint64_t rank = 0; rank < 500; ++rank) {
        seen.insert(derive_seed(seed, purpose, rank));
        ++count;
      }
    }
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), count);
}

TEST(DeriveSeed, IsTheFinalizerOfSplitMix64) {
  // The first outputs of the published generator for seed 0: purpose 0, ranks 0, 1 and 2.
  EXPECT_EQ(derive_seed(0, 0, 0), 0xE220A8397B1DCDAFull);
  EXPECT_EQ(derive_seed(0, 0, 1), 0x6E789E6AA1B965F4ull);
  EXPECT_EQ(derive_seed(0, 0, 2), 0x06C45D188009454Full);
}

TEST(BatchCapacity, HoldsTheLargestShareOfTheBatchAndTheEvaluationBatch) {
  Config config;
  config.train.global_batch_seqs = 50;
  config.train.accumulation_steps = 2;
  config.data.max_seq_tokens = 32;
  config.data.max_masked_per_seq = 5;
  config.eval.batch_seqs = 4;
  EXPECT_EQ(micro_batch_seqs(config, 1), 25);
  EXPECT_EQ(micro_batch_seqs(config, 4), 7);  // 50 over 8 places, rounded up
  const BatchRows capacity = batch_capacity(config, 4);
  EXPECT_EQ(capacity.seqs, 7);
  EXPECT_EQ(capacity.tokens, 7 * 32);
  EXPECT_EQ(capacity.masked, 7 * 5);
  config.eval.batch_seqs = 9;
  EXPECT_EQ(batch_capacity(config, 4).seqs, 9);
}

class DataOptions : public ::testing::Test {
 protected:
  DataOptions() {
    write_shard(folder_.path("part_0.hdf5"), ShardLayout::kVariableLength, example_samples(3, 1));
    config_.data.train = config_.data.eval = folder_.path();
    config_.data.max_seq_tokens = 64;
    config_.data.max_masked_per_seq = 9;
    config_.data.window_shards = 7;
    config_.data.prefetch_steps = 3;
    config_.model.vocab_size = 1000;
    config_.train.seed = 77;
    config_.train.max_steps = 20;
    config_.train.global_batch_seqs = 10;
    config_.train.accumulation_steps = 5;
    config_.eval.batch_seqs = 6;
    config_.eval.max_samples = 8;
  }

  TempFolder folder_;
  Config config_;
};

TEST_F(DataOptions, OfTheTrainingDataGoOnWhereTheRunStands) {
  config_.data.exchange_padding = ExchangePadding::kAllGather;
  config_.data.order = SampleOrder::kPublished;
  const PipelineOptions options = pipeline_options(config_, 13);
  EXPECT_EQ(options.shards, std::vector<std::string>{folder_.path("part_0.hdf5")});
  EXPECT_EQ(options.first_step, 13);
  EXPECT_EQ(options.num_steps, 7);
  EXPECT_EQ(options.limits.max_seq_tokens, 64);
  EXPECT_EQ(options.limits.max_masked_per_seq, 9);
  EXPECT_EQ(options.limits.vocab_size, 1000);
  EXPECT_EQ(options.global_batch_seqs, 10);
  EXPECT_EQ(options.micro_batches_per_step, 5);
  EXPECT_EQ(options.seed, 77u);
  EXPECT_EQ(options.window_shards, 7);
  EXPECT_EQ(options.prefetch_steps, 3);
  EXPECT_EQ(options.exchange, ExchangePadding::kAllGather);
  EXPECT_EQ(options.order, SampleOrder::kPublished);
  EXPECT_EQ(pipeline_options(config_, 25).num_steps, 0);  // beyond its end already
  config_.data.exchange_padding = ExchangePadding::kOff;
  config_.data.order = SampleOrder::kWindowed;
  EXPECT_EQ(pipeline_options(config_, 0).exchange, ExchangePadding::kOff);
  EXPECT_EQ(pipeline_options(config_, 0).order, SampleOrder::kWindowed);
}

TEST_F(DataOptions, OfTheEvaluationSet) {
  const EvalOptions options = eval_options(config_);
  EXPECT_EQ(options.shards.size(), 1u);
  EXPECT_EQ(options.batch_seqs, 6);
  EXPECT_EQ(options.max_samples, 8);
  EXPECT_EQ(options.limits.max_seq_tokens, 64);
  EXPECT_EQ(options.limits.max_masked_per_seq, 9);
  EXPECT_EQ(options.limits.vocab_size, 1000);
}

}  // namespace
}  // namespace bertha

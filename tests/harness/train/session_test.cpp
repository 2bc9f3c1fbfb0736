#include "harness/train/session.h"

#include <gtest/gtest.h>

#include <set>

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

TEST(BatchCapacity, OfDynamicMasksFollowsFromTheirFraction) {
  Config config;
  config.train.global_batch_seqs = 28;
  config.data.max_seq_tokens = 32;
  config.data.max_masked_per_seq = 5;
  config.data.masking = Masking::kDynamic;
  config.data.masked_fraction = 0.5;
  config.eval.batch_seqs = 9;
  EXPECT_EQ(masked_per_seq(config.data), 16);
  EXPECT_EQ(batch_capacity(config, 4).masked, 7 * 16);
  config.data.masked_fraction = 0.1;  // evaluation data have five
  EXPECT_EQ(batch_capacity(config, 4).masked, 9 * 5);
}

}  // namespace
}  // namespace bertha

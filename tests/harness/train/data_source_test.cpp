#include "harness/train/data_source.h"

#include <gtest/gtest.h>

#include "data/format/manifest.h"
#include "harness/config/keys.h"
#include "harness/train/run.h"
#include "harness/train/session.h"
#include "kernels/base/tests/error_of.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

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
    config_.train.global_batch_seqs = 10;
    config_.train.accumulation_steps = 5;
    config_.eval.batch_seqs = 6;
    config_.eval.max_samples = 8;
  }

  TempFolder folder_;
  Config config_;
};

TEST_F(DataOptions, OfTheTrainingData) {
  config_.data.exchange_padding = ExchangePadding::kAllGather;
  config_.data.order = SampleOrder::kPublished;
  const PipelineOptions options = pipeline_options(config_, 13, 7);
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
  config_.data.exchange_padding = ExchangePadding::kOff;
  config_.data.order = SampleOrder::kWindowed;
  EXPECT_EQ(pipeline_options(config_, 0, 20).exchange, ExchangePadding::kOff);
  EXPECT_EQ(pipeline_options(config_, 0, 20).order, SampleOrder::kWindowed);
}

const std::vector<std::string> kPieces{"[PAD]", "[UNK]", "[MASK]", "[CLS]", "[SEP]", "the", "##s"};

TEST_F(DataOptions, OfStoredMasks) {
  EXPECT_FALSE(mask_rule(config_.data).has_value());
  EXPECT_FALSE(pipeline_options(config_, 0, 1).masks.has_value());
  EXPECT_EQ(masked_per_seq(config_.data), 9);
}

TEST_F(DataOptions, OfDynamicMasksFollowFromTheVocabulary) {
  config_.data.masking = Masking::kDynamic;
  config_.data.masked_fraction = 0.3;
  config_.data.vocab = folder_.path("vocab.txt");
  std::string lines;
  for (const std::string& piece : kPieces) lines += piece + "\n";
  write_bytes(config_.data.vocab, lines);
  MaskRule rule = pipeline_options(config_, 0, 1).masks.value();
  EXPECT_EQ(rule.fraction, 0.3);
  EXPECT_EQ(rule.vocab_size, 7);
  EXPECT_EQ(rule.special,
            (SpecialTokens{.pad = 0, .unknown = 1, .classify = 3, .separator = 4, .mask = 2}));
  EXPECT_EQ(rule.continues_word, nullptr);
  config_.data.whole_words = true;
  rule = mask_rule(config_.data).value();
  EXPECT_EQ(*rule.continues_word, (std::vector<bool>{0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(masked_per_seq(config_.data), 19);
  EXPECT_EQ(eval_options(config_).limits.max_masked_per_seq, 9);
}

TEST_F(DataOptions, OfDynamicMasksFollowFromTheManifestOrAreRefused) {
  config_.data.masking = Masking::kDynamic;
  const auto refusal = [&] { return error_of([&] { mask_rule(config_.data); }, ExitCode::kUsage); };
  EXPECT_NE(refusal().find("manifest.json is missing; set data.vocab"), std::string::npos);
  Manifest manifest;
  manifest.limits.vocab_size = 500;
  write_manifest(folder_.path("manifest.json"), manifest);
  EXPECT_NE(refusal().find("manifest.json states none; set data.vocab"), std::string::npos);
  const SpecialTokens special{.pad = 5, .unknown = 6, .classify = 7, .separator = 8, .mask = 9};
  manifest.special_ids = special;
  write_manifest(folder_.path("manifest.json"), manifest);
  EXPECT_EQ(mask_rule(config_.data)->special, special);
  EXPECT_EQ(mask_rule(config_.data)->vocab_size, 500);
}

TEST(DataLimits, AModelHasNoMoreWordsThanShardsMayHave) {
  EXPECT_EQ(find_key("model.vocab_size")->range.high, static_cast<double>(kMaxVocabEntries));
}

TEST_F(DataOptions, ARunBeyondItsEndHasNoBatchesLeft) {
  config_.train.max_steps = 20;
  config_.train.accumulation_steps = 1;
  config_.data.max_seq_tokens = 512;
  config_.data.max_masked_per_seq = 76;
  config_.model.vocab_size = 30522;
  config_.train.global_batch_seqs = 2;
  bertha::Run run{.config = config_, .plan = make_run_plan(config_)};
  const auto batches_left = [&](int64_t step) {
    run.state.step = step;
    SoloTransport transport;
    const auto pipeline = plan_batches(run)(borrowed(transport), plain_host_allocator());
    int64_t batches = 0;
    while (pipeline->next()) ++batches;
    return batches;
  };
  EXPECT_EQ(batches_left(18), 2);
  EXPECT_EQ(batches_left(20), 0);
  EXPECT_EQ(batches_left(25), 0);
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

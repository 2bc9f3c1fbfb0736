#include "harness/config/check.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/support/load_settings.h"
#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

/// The sentences alone: without origins they have no place in front.
std::string contradiction(const std::vector<std::string>& overrides, int world_size = 1) {
  const LoadedConfig loaded{.config = test::load_settings({}, overrides).config, .origins = {}};
  return error_of([&] { check_config(loaded, world_size); }, ExitCode::kUsage);
}

TEST(CheckConfig, DefaultsFitEightRanks) {
  EXPECT_EQ(contradiction({}, 0), "no error");
  EXPECT_EQ(contradiction({}, 8), "no error");
}

std::vector<std::string> remarks(const std::vector<std::string>& overrides) {
  return config_remarks(test::load_settings({}, overrides).config);
}

TEST(ConfigRemarks, AWarmUpBeyondTheLastStepIsRemarked) {
  const std::string never = "optimizer.base_learning_rate; optimizer.warmup_steps is 500";
  const std::vector<std::string> run{"train.max_steps=100", "optimizer.warmup_steps=500"};
  ASSERT_EQ(remarks(run).size(), 1u);
  EXPECT_THAT(remarks(run).front(),
              HasSubstr("the run ends at step 100 but its warm-up at step 500: "));
  EXPECT_THAT(remarks(run).front(), HasSubstr(never));
  EXPECT_TRUE(remarks({"train.max_steps=500", "optimizer.warmup_steps=500"}).empty());
  EXPECT_TRUE(remarks({"train.max_steps=100", "optimizer.warmup_steps=500",
                       "optimizer.start_warmup_step=-400"})
                  .empty());
  EXPECT_TRUE(remarks({}).empty());
}

TEST(ConfigRemarks, AScheduleThatEndsBeforeTheRunIsRemarked) {
  EXPECT_EQ(
      remarks({"train.max_steps=100", "optimizer.warmup_steps=0", "optimizer.schedule_steps=60"}),
      std::vector<std::string>{"the learning rate is zero for the last 40 steps; "
                               "optimizer.schedule_steps is 60"});
}

TEST(CheckConfig, SkippedSpikesAreNotForTheClosedDivisionAndNeedANormBeforeClipping) {
  const std::string skip = "optimizer.gradient_spike=skip", open = "mlperf.division=open";
  EXPECT_THAT(contradiction({skip, "mlperf.division=closed"}), HasSubstr("mlperf.division: open"));
  EXPECT_EQ(contradiction({skip, open}), "no error");
  EXPECT_THAT(contradiction({skip, open, "optimizer.clip=before"}),
              HasSubstr("optimizer.clip: after"));
}

TEST(CheckConfig, DynamicMasksAreNotForTheClosedDivisionAndTheirKeysNotForStoredOnes) {
  const std::string dynamic = "data.masking=dynamic", open = "mlperf.division=open";
  EXPECT_EQ(contradiction({dynamic, "mlperf.division=closed"}),
            "data.masking = dynamic replaces the masks that the closed division prescribes; "
            "write mlperf.division: open");
  EXPECT_EQ(contradiction({dynamic, open, "data.masked_fraction=0.4"}), "no error");
  EXPECT_EQ(contradiction({dynamic, open, "data.whole_words=true", "data.vocab=v.txt"}),
            "no error");
  EXPECT_THAT(contradiction({dynamic, open, "data.whole_words=true"}), HasSubstr("set data.vocab"));
  EXPECT_THAT(contradiction({dynamic, open, "data.synthetic=true"}),
              HasSubstr("data.masking: stored"));
  for (const char* needs : {"data.masked_fraction=0.4", "data.whole_words=true"}) {
    EXPECT_THAT(contradiction({needs}), HasSubstr("write data.masking: dynamic or remove the key"))
        << needs;
  }
}

TEST(CheckConfig, PortableKernelsDoNotComputeWhatOnlySm90aDoes) {
  const std::string portable = "cuda.kernels=portable";
  for (const char* unable : {"train.precision=fp8", "cuda.attention=persistent",
                             "cuda.attention=split", "cuda.gelu_gemms=own"}) {
    EXPECT_THAT(contradiction({portable, unable}), HasSubstr("cuda.kernels is portable")) << unable;
  }
  EXPECT_EQ(contradiction({portable, "cuda.attention=grouped"}), "no error");
}

TEST(CheckConfig, GoingBackFromSpikesNeedsCheckpoints) {
  const std::string rewind = "optimizer.gradient_spike=rewind", open = "mlperf.division=open";
  EXPECT_THAT(contradiction({rewind, open}), HasSubstr("checkpoint.every_steps = 0"));
  EXPECT_EQ(contradiction({rewind, open, "checkpoint.every_steps=100"}), "no error");
}

TEST(ConfigRemarks, ARunThatLearnsNothingOfUseIsRemarkedFirst) {
  const std::vector<std::string> late{"train.max_steps=100", "optimizer.warmup_steps=500"};
  for (const std::string key : {"data.synthetic", "train.overfit_one_batch"}) {
    std::vector<std::string> overrides = late;
    overrides.push_back(key + "=true");
    ASSERT_EQ(remarks(overrides).size(), 2u);
    EXPECT_THAT(remarks(overrides).front(), HasSubstr(key));
    EXPECT_THAT(remarks(overrides).front(), HasSubstr("mean nothing"));
  }
}

TEST(ConfigRemarks, NoStepsNeedNoSchedule) {
  EXPECT_TRUE(remarks({"train.max_steps=0", "optimizer.warmup_steps=500"}).empty());
}

TEST(CheckConfig, SyntheticDataExcludeShards) {
  EXPECT_EQ(contradiction({"data.synthetic=true", "data.train=shards"}),
            "data.train = shards and data.synthetic = true exclude each other; set data.train: "
            "\"\" for synthetic data, or data.synthetic: false");
  EXPECT_NE(contradiction({"data.synthetic=true", "data.eval=shards"}), "no error");
  EXPECT_EQ(contradiction({"data.synthetic=true", "data.synthetic_lengths=file"}), "no error");
  EXPECT_NE(contradiction({"data.synthetic_lengths=file"}), "no error");
}

TEST(CheckConfig, RunsWhoseLogsSayOpenInAnyCaseMayLeaveTheRules) {
  const std::string closed = "mlperf.division=closed", adamw = "optimizer.name=adamw";
  EXPECT_NE(contradiction({adamw, closed}), "no error");
  EXPECT_EQ(contradiction({adamw, closed, "data.synthetic=true"}), "no error");
  EXPECT_EQ(contradiction({"train.nsp_weight=0", closed, "train.overfit_one_batch=true"}),
            "no error");
}

TEST(CheckConfig, CheckpointsThatAreKeptForGoodAreSaved) {
  EXPECT_EQ(
      contradiction({"checkpoint.keep_every_steps=30"}),
      "checkpoint.keep_every_steps = 30, but checkpoint.every_steps = 0 saves none; set it too");
  EXPECT_EQ(contradiction({"checkpoint.keep_every_steps=30", "checkpoint.every_steps=20"}),
            "checkpoint.keep_every_steps = 30 is not a multiple of checkpoint.every_steps = 20; "
            "choose 40");
  EXPECT_EQ(contradiction({"checkpoint.keep_every_steps=40", "checkpoint.every_steps=20"}),
            "no error");
}

TEST(CheckConfig, HeadsDivideHidden) {
  EXPECT_EQ(
      contradiction({"model.heads=12"}),
      "model.heads = 12 does not divide model.hidden = 1024; choose a divisor of model.hidden");
}

TEST(CheckConfig, WidthsAreMultiplesOfEight) {
  EXPECT_EQ(contradiction({"model.hidden=100", "model.heads=4"}),
            "model.hidden = 100 is not a multiple of 8; choose 104");
  EXPECT_EQ(contradiction({"model.feed_forward=4097"}),
            "model.feed_forward = 4097 is not a multiple of 8; choose 4104");
}

TEST(CheckConfig, TheBatchDividesByRanksAndAccumulation) {
  EXPECT_EQ(contradiction({"train.global_batch_seqs=448", "train.accumulation_steps=3"}, 8),
            "train.global_batch_seqs = 448 is not divisible by 8 ranks x "
            "train.accumulation_steps = 3 (24); choose 456");
  EXPECT_EQ(contradiction({"train.global_batch_seqs=7", "train.accumulation_steps=2"}, 0),
            "train.global_batch_seqs = 7 is not divisible by train.accumulation_steps = 2 (2); "
            "choose 8");
  EXPECT_EQ(contradiction({"train.global_batch_seqs=24", "train.accumulation_steps=3"}, 8),
            "no error");
}

TEST(CheckConfig, SequencesFitThePositionTable) {
  EXPECT_EQ(contradiction({"model.max_positions=128", "data.max_masked_per_seq=20"}),
            "data.max_seq_tokens = 512 exceeds model.max_positions = 128; lower the first or "
            "raise the second");
  EXPECT_EQ(contradiction({"data.max_seq_tokens=64"}),
            "data.max_masked_per_seq = 76 exceeds data.max_seq_tokens = 64; lower it");
}

TEST(CheckConfig, RunNamesAndResumeAreWords) {
  EXPECT_EQ(contradiction({"log.run_name=a/b"}),
            "log.run_name = \"a/b\" cannot name a folder; write a word without \"/\"");
  EXPECT_EQ(contradiction({"checkpoint.resume="}),
            "checkpoint.resume is empty; write auto, never or the path of a checkpoint");
}

TEST(CheckConfig, TheClosedDivisionHasOneOptimizerScheduleAndLoss) {
  const std::string closed = "mlperf.division=closed";
  EXPECT_EQ(contradiction({"optimizer.name=adamw", closed}),
            "optimizer.name = adamw is not the optimizer of the closed division; write "
            "mlperf.division: open");
  EXPECT_EQ(contradiction({"train.nsp_weight=0.5", closed}),
            "train.nsp_weight = 0.5 is not the loss of the closed division; write mlperf.division: "
            "open");
  for (const char* other : {"optimizer.schedule=linear", "optimizer.schedule=constant",
                            "optimizer.final_fraction=0.1"}) {
    EXPECT_THAT(contradiction({other, closed}), HasSubstr("learning rate decays to zero"));
  }
  EXPECT_EQ(contradiction({"optimizer.name=adamw", "train.nsp_weight=0.5"}), "no error");
}

TEST(CheckConfig, TheClosedRecipesAreClosed) {
  int64_t recipes = 0;
  const std::filesystem::path folder = std::filesystem::path(kSourceDir) / "configs";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".yaml") continue;
    const Config config = load_config({entry.path().string()}, {}).config;
    const bool is_recipe = name.starts_with("mlperf_closed_");
    EXPECT_EQ(config.mlperf.division == Division::kClosed, is_recipe) << name;
    EXPECT_EQ(config.checkpoint.init_missing_heads == MissingHeads::kRefuse, is_recipe) << name;
    recipes += is_recipe ? 1 : 0;
  }
  EXPECT_EQ(recipes, 5);
}

TEST(CheckConfig, OnlyWsdHasADecayOfItsOwn) {
  EXPECT_NE(contradiction({"optimizer.schedule=wsd"}), "no error");
  EXPECT_NE(contradiction({"optimizer.decay_steps=10"}), "no error");
  EXPECT_EQ(contradiction({"optimizer.schedule=wsd", "optimizer.decay_steps=10"}), "no error");
}

TEST(CheckConfig, ReportsAllContradictionsAtOnce) {
  EXPECT_EQ(
      contradiction({"model.heads=3", "train.global_batch_seqs=9"}, 2),
      "2 contradictions in the configuration:\n"
      "  model.heads = 3 does not divide model.hidden = 1024; choose a divisor of model.hidden\n"
      "  train.global_batch_seqs = 9 is not divisible by 2 ranks x "
      "train.accumulation_steps = 1 (2); choose 10");
}

TEST(CheckConfig, AContradictionBeginsWithThePlaceOfItsFirstKeyThatWasSet) {
  const TempFolder folder;
  const std::string file = folder.write("my.yaml", "model:\n  hidden: 768\n  heads: 10\n");
  const auto errors = [&](const std::vector<std::string>& settings) {
    return contradictions(test::load_settings({file}, settings), 1);
  };
  EXPECT_THAT(errors({}), ElementsAre(file + ":3:3: model.heads = 10 does not divide model.hidden "
                                             "= 768; choose a divisor of model.hidden"));
  EXPECT_THAT(errors({"model.heads=7"}),
              ElementsAre(StartsWith("--set model.heads=7: model.heads = 7 does not")));
  // The other key of the sentence keeps its default.
  EXPECT_THAT(contradictions(test::load_settings({}, {"model.hidden=1000"}), 1),
              ElementsAre(StartsWith("--set model.hidden=1000: model.heads = 16 does not")));
  // The beginning of a name is another key.
  LoadedConfig loaded{.config = {}, .origins = {{"model.head", "here"}}};
  loaded.config.model.heads = 3;
  EXPECT_THAT(contradictions(loaded, 1), ElementsAre(StartsWith("model.heads = 3 does not")));
}

TEST(ShippedConfigs, AllLoadAndFitTheirRanks) {
  const std::filesystem::path folder = std::filesystem::path(kSourceDir) / "configs";
  int64_t found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    ++found;
    const LoadedConfig loaded = test::load_settings({entry.path().string()});
    const bool eight = entry.path().filename().string().find("8gpu") != std::string::npos;
    EXPECT_NO_THROW(check_config(loaded, eight ? 8 : 2)) << entry.path();
  }
  EXPECT_GE(found, 8);
}

TEST(CheckConfig, ProfiledStepsAreARange) {
  for (const std::string good : {"1:1", "11:15"}) {
    EXPECT_EQ(contradiction({"log.profile_steps=" + good}), "no error") << good;
  }
  for (const std::string bad : {"11", "0:3", "5:4", "3:", ":3", "1:2:3", "a:b", "1:2x", "-1:2"}) {
    EXPECT_EQ(contradiction({"log.profile_steps=" + bad}),
              "log.profile_steps = \"" + bad +
                  "\" is not a range of steps; write the first and the last step, such as 11:15");
  }
}

}  // namespace
}  // namespace bertha

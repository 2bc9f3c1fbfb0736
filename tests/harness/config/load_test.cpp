
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "harness/config/keys.h"
#include "harness/config/load.h"
#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/support/captured_log.h"
#include "tests/support/load_settings.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

// The message of the Error(kUsage) that loading ends with; "<folder>" stands for the test's folder.
std::string error_of(const TempFolder& folder, const std::vector<std::string>& files,
                     const std::vector<std::string>& overrides = {}) {
  std::string text =
      bertha::error_of([&] { test::load_settings(files, overrides); }, ExitCode::kUsage);
  const std::string root = folder.path("");
  for (size_t at = text.find(root); at != std::string::npos; at = text.find(root, at)) {
    text.erase(at, root.size());
  }
  return text;
}

std::string error_of_text(const std::string& text) {
  const TempFolder folder;
  return error_of(folder, {folder.write("a.yaml", text)});
}

std::string error_of_set(const std::string& assignment) {
  const TempFolder folder;
  return error_of(folder, {}, {assignment});
}

/// --set KEY=VALUE is refused, and the message names both and says this.
void expect_refused(const std::string& assignment, const std::string& said) {
  const std::string key = assignment.substr(0, assignment.find('='));
  EXPECT_EQ(error_of_set(assignment), "--set " + assignment + ": " + key + ": " + said);
}

TEST(LoadConfig, WithoutFilesGivesTheDefaults) {
  const LoadedConfig loaded = test::load_settings({});
  EXPECT_EQ(to_yaml(loaded.config), to_yaml(Config{}));
  EXPECT_EQ(loaded.origins.size(), config_keys().size());
  EXPECT_EQ(loaded.origins.at("train.seed"), kDefaultOrigin);
}

TEST(LoadConfig, ReadsEveryTypeAndKeepsOrigins) {
  const TempFolder folder;
  const std::string file = folder.write("a.yaml",
                                        "train:\n"
                                        "  seed: 7\n"
                                        "  target_accuracy: 0.5\n"
                                        "data: {verify_manifest: no, order: published}\n"
                                        "log.run_name: trial\n");
  const LoadedConfig loaded = test::load_settings({file}, {"train.max_steps=12"});
  EXPECT_EQ(loaded.config.train.seed, 7);
  EXPECT_EQ(loaded.config.train.target_accuracy, 0.5);
  EXPECT_EQ(loaded.config.train.max_steps, 12);
  EXPECT_FALSE(loaded.config.data.verify_manifest);
  EXPECT_EQ(loaded.config.data.order, SampleOrder::kPublished);
  EXPECT_EQ(loaded.config.log.run_name, "trial");
  EXPECT_EQ(loaded.origins.at("train.seed"), file + ":2:3");
  EXPECT_EQ(loaded.origins.at("data.order"), file + ":4:29");
  EXPECT_EQ(loaded.origins.at("train.max_steps"), "--set train.max_steps=12");
  EXPECT_THAT(to_yaml_with_origins(loaded), HasSubstr("# steps; --set train.max_steps=12\n"));
}

TEST(LoadConfig, CountsTakeSuffixesAndMinutesTakeHours) {
  const Config config =
      test::load_settings(
          {}, {"train.max_samples=1.5M", "eval.every_samples=64k", "eval.max_samples=2Ki",
               "eval.start_samples=1.005k", "train.max_steps=1e3", "train.time_limit_minutes=1.5h",
               "optimizer.start_warmup_step=-200k", "train.seed=999999999999999"})
          .config;
  EXPECT_EQ(config.train.max_samples, 1'500'000);
  EXPECT_EQ(config.eval.every_samples, 64'000);
  EXPECT_EQ(config.eval.max_samples, 2'048);
  EXPECT_EQ(config.eval.start_samples, 1'005);
  EXPECT_EQ(config.train.max_steps, 1'000);
  EXPECT_EQ(config.train.time_limit_minutes, 90);
  EXPECT_EQ(config.optimizer.start_warmup_step, -200'000);
  EXPECT_EQ(config.train.seed, 999'999'999'999'999) << "integers keep every digit";
}

TEST(LoadConfig, LaterFilesAndOverridesWin) {
  const TempFolder folder;
  const std::string a = folder.write("a.yaml", "train: {seed: 1, max_steps: 1}\n");
  const std::string b = folder.write("b.yaml", "train: {seed: 2}\n");
  const Config config =
      test::load_settings({a, b}, {"train.log_every_steps=3", "train.log_every_steps=4"}).config;
  EXPECT_EQ(config.train.seed, 2);
  EXPECT_EQ(config.train.max_steps, 1);
  EXPECT_EQ(config.train.log_every_steps, 4);
}

TEST(LoadConfig, AnIncludeIsRelativeToItsFileAndWeakerThanIt) {
  const TempFolder folder;
  folder.write("parts/model.yaml", "model: {layers: 3, hidden: 64}\n");
  folder.write("parts/data.yaml", "include: model.yaml\ndata: {window_shards: 9}\n");
  const std::string file =
      folder.write("run.yaml", "model: {layers: 5}\ninclude: [parts/data.yaml]\n");
  const LoadedConfig loaded = test::load_settings({file});
  EXPECT_EQ(loaded.config.model.layers, 5);
  EXPECT_EQ(loaded.config.model.hidden, 64);
  EXPECT_EQ(loaded.config.data.window_shards, 9);
  EXPECT_EQ(loaded.origins.at("model.hidden"), folder.path("parts/model.yaml") + ":1:20");
}

TEST(LoadConfig, AFileIncludedTwiceIsNoCycle) {
  const TempFolder folder;
  folder.write("base.yaml", "model: {layers: 3}\n");
  folder.write("b.yaml", "include: base.yaml\n");
  const std::string file = folder.write("run.yaml", "include: [base.yaml, b.yaml]\n");
  EXPECT_EQ(test::load_settings({file}).config.model.layers, 3);
}

TEST(LoadConfig, RefusesIncludesThatLeadBack) {
  const TempFolder folder;
  folder.write("b.yaml", "include: ./a.yaml\n");
  EXPECT_EQ(error_of(folder, {folder.write("a.yaml", "include: b.yaml\n")}),
            "b.yaml:1:10: include: a.yaml is already being read; remove this include");
}

TEST(LoadConfig, NamesTheIncludeOfAMissingFile) {
  const TempFolder folder;
  const std::string file = folder.write("a.yaml", "include: models/none.yaml\n");
  EXPECT_EQ(error_of(folder, {file}),
            "a.yaml:1:10: include: models/none.yaml: no such file; give the path of a YAML file");
  EXPECT_EQ(error_of(folder, {folder.path("none.yaml")}),
            "none.yaml: no such file; give the path of a YAML file");
}

TEST(LoadConfig, TellsWhatIsNoYamlFile) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path("folder"));
  EXPECT_EQ(error_of(folder, {folder.path("folder")}),
            "folder: is a folder; give the path of a YAML file");
  EXPECT_THAT(error_of(folder, {folder.write("config_A_1x8.sh", "export LR=1\n")}),
              HasSubstr("config_A_1x8.sh: is a shell script, want YAML; source a published "
                        "config_*.sh before launch/run_and_time.sh"));
}

TEST(LoadConfig, ATabInFrontOfALineIsNamed) {
  EXPECT_EQ(error_of_text("train:\n  seed: 1\n\tmax_steps: 2\n"),
            "a.yaml:3:1: not YAML: this line is indented with a tab; use spaces");
  EXPECT_EQ(error_of_text("train:\n\tseed: 1\n"),
            "a.yaml:2:1: not YAML: this line is indented with a tab; use spaces");
}

TEST(LoadConfig, WhatIsNoYamlIsSaidInWords) {
  EXPECT_THAT(error_of_text("train: {seed: 1}}\n"), HasSubstr("a.yaml:1:17: not YAML: a } or ] "));
  EXPECT_THAT(error_of_text("train:\n    seed: 1\n  max_steps: 2\n"),
              HasSubstr("a.yaml:3:3: not YAML: inconsistent indentation within a section"));
  for (const char* text : {"log:\n  run_name: a: b\n", "log:\n  run_name: a\n   seed: b\n"}) {
    EXPECT_THAT(error_of_text(text), HasSubstr("not YAML: a second colon in a value, or a key"));
  }
  EXPECT_THAT(error_of_text("log:\n  run_name: @a\n"), HasSubstr("; quote the value"));
}

TEST(LoadConfig, AQuoteWithoutEndDoesNotTakeTheRestOfTheFile) {
  const std::string said = "a.yaml:2:13: log.run_name: a quote is not closed; close it";
  EXPECT_EQ(error_of_text("log:\n  run_name: \"a\ntrain:\n  seed: 1\n"), said);
  EXPECT_EQ(error_of_text("log:\n  run_name: 'a''\ntrain:\n  seed: 1\n"), said);
  EXPECT_EQ(error_of_text("log:\n  run_name: \"a\\\"\n"), said);
  EXPECT_EQ(config_from_yaml("log:\n  run_name: \"a\\\"b\"\n", "a.yaml").log.run_name, "a\"b");
  EXPECT_EQ(config_from_yaml("log:\n  run_name: 'a''b'\n", "a.yaml").log.run_name, "a'b");
}

TEST(LoadConfig, AByteOrderMarkShiftsNoQuote) {
  const TempFolder folder;
  const std::string file = folder.write("a.yaml", "\xef\xbb\xbflog: {\"run_name\": abc}\n");
  EXPECT_EQ(load_config({file}, {}).config.log.run_name, "abc");
}

TEST(LoadConfig, RefusesASecondDocument) {
  const std::string one = "train: {seed: 1}\n";
  for (const std::string mark : {"---\n", "...\n", "...\n---\n"}) {
    EXPECT_THAT(error_of_text(one + mark + one),
                HasSubstr(": a second YAML document begins here, want one; remove the line"));
  }
  EXPECT_THAT(error_of_text("# one\n--- # here\n" + one + "--- {}\n"),
              HasSubstr("a.yaml:4:1: a sec"));
  for (const std::string& text :
       {"---\n" + one + "...\n", "%YAML 1.2\n--- # here\n" + one + "---\n# end\n",
        one + "log: {run_name: \"--- a\"}\n"}) {
    EXPECT_EQ(config_from_yaml(text, "a.yaml").train.seed, 1) << text;
  }
  EXPECT_THAT(error_of_text("," + one),
              HasSubstr("a.yaml: is empty"));  // of which LoadAll has no end
}

TEST(LoadConfig, RefusesWhatIsNoMapOfSections) {
  EXPECT_EQ(error_of_text(""), "a.yaml: is empty, want sections such as train: and model:");
  EXPECT_EQ(error_of_text("hello\n"),
            "a.yaml:1:1: found a text, want sections such as train: and model:");
  EXPECT_EQ(error_of_text("- 1\n"),
            "a.yaml:1:1: found a list, want sections such as train: and model:");
  EXPECT_THAT(error_of_text("train: {seed: 1\n"), HasSubstr("a.yaml:2:1: not YAML: a { has no }"));
  EXPECT_THAT(error_of_text("include: [b.yaml\n"), HasSubstr("a.yaml:2:1: not YAML: a [ has no ]"));
  EXPECT_EQ(
      error_of_text("train: 5\n"),
      "a.yaml:1:1: train: found \"5\", want a section of lines such as \"seed: 1\", with a space "
      "after the colon");
  EXPECT_EQ(error_of_text("include: {a: b}\n"),
            "a.yaml:1:10: include: found a section, want the path of a file");
}

TEST(LoadConfig, AnUnknownKeyNamesTheNearestOne) {
  EXPECT_EQ(error_of_text("train:\n  sede: 1\n"),
            "a.yaml:2:3: train.sede: unknown key; did you mean train.seed?");
  EXPECT_EQ(error_of_text("train: {learning_rate: 1}\n"),
            "a.yaml:1:9: train.learning_rate: unknown key; did you mean "
            "optimizer.base_learning_rate?");
  EXPECT_EQ(error_of_text("trian: {seed: 1}\n"),
            "a.yaml:1:1: trian: unknown key; did you mean train?");
  EXPECT_EQ(error_of_text("seed: 1\n"), "a.yaml:1:1: seed: unknown key; did you mean train.seed?");
  EXPECT_EQ(error_of_text("model: {max_seq_tokens: 1}\n"),
            "a.yaml:1:9: model.max_seq_tokens: unknown key; did you mean data.max_seq_tokens?");
  expect_refused("zzzzzzzz=1", "unknown key; `bertha config show` lists all keys");
}

TEST(LoadConfig, ARepeatedKeyNamesBothPlaces) {
  EXPECT_EQ(error_of_text("train:\n  seed: 1\n  seed: 2\n"),
            "a.yaml:3:3: train.seed: given twice, first at a.yaml:2:3; keep one");
  EXPECT_EQ(error_of_text("train: {seed: 1}\ntrain: {max_steps: 1}\n"),
            "a.yaml:2:1: train: given twice, first at a.yaml:1:1; keep one");
  EXPECT_EQ(error_of_text("train: {seed: 1}\ntrain.seed: 1\n"),
            "a.yaml:2:1: train.seed: given twice, first at a.yaml:1:9; keep one");
}

TEST(LoadConfig, MessagesHaveLimits) {
  std::string repeated = "train: {seed: 1}\n", unknown;
  for (int i = 0; i < 1000; ++i) {
    repeated += "train: {seed: 1}\n";
    unknown += concat("key", i, ": 1\n");
  }
  EXPECT_EQ(error_of_text(repeated),
            "2 errors in the configuration:\n"
            "  a.yaml:2:1: train: given twice, first at a.yaml:1:1; keep one\n"
            "  a.yaml: train: given 1001 times in all");
  const std::string many = error_of_text(unknown);
  EXPECT_THAT(many, AllOf(HasSubstr("1000 errors"), EndsWith("\n  ...")));
  EXPECT_LT(many.size(), 8000u);
  const std::string value = error_of_text("train: {seed: " + std::string(100'000, 'x') + "}\n");
  EXPECT_THAT(value, HasSubstr("found \"" + std::string(197, 'x') + "...\", want an integer"));
}

TEST(LoadConfig, ContentOfAFileThatIsNoConfigurationIsNotPrinted) {
  for (const char* text : {"root:$6$salt$hash:19000:0:99999:7:::\n", "? [secret]\n: 1\n",
                           "root:*:19000:0:99999:7:::\nuser:$6$salt$hash:19000:0:99999:7:::\n"}) {
    const std::string message = error_of_text(text);
    for (const char* word : {"root", "19000", "hash", "secret"}) {
      EXPECT_THAT(message, Not(HasSubstr(word))) << text;
    }
  }
}

TEST(LoadConfig, AFileIsReadUpToALimit) {
  const TempFolder folder;
  const std::string path = folder.path("sparse.yaml");
  std::ofstream(path) << "train: {seed: 1}\n";
  std::filesystem::resize_file(path, uint64_t{200} << 30);
  EXPECT_EQ(error_of([&] { load_config({path}, {}); }, ExitCode::kUsage),
            path + ": has more than 1048576 bytes; give the path of a YAML file");
}

TEST(LoadConfig, AWrongTypeSaysWhatWasFoundAndWanted) {
  expect_refused("train.max_steps=many",
                 "found \"many\", want an integer (64k and 1.5M are fine too)");
  expect_refused("model.layers=1.5", "found \"1.5\", want an integer");
  expect_refused("train.max_samples=1234567890.5",
                 "found \"1234567890.5\", want an integer (64k and 1.5M are fine too)");
  expect_refused("model.layers=2k", "found \"2k\", want an integer");
  expect_refused("optimizer.beta_1=high", "found \"high\", want a number");
  expect_refused("optimizer.beta_1=nan", "found \"nan\", want a number");
  expect_refused("log.tensorboard=maybe", "found \"maybe\", want true or false");
  expect_refused("train.max_steps=", "found \"\", want an integer (64k and 1.5M are fine too)");
  EXPECT_EQ(error_of_text("train: {seed: [1, 2]}\n"),
            "a.yaml:1:9: train.seed: found a list, want an integer");
  EXPECT_EQ(error_of_text("data: {train: }\n"),
            "a.yaml:1:8: data.train: found nothing, want a text (\"\" if empty)");
  EXPECT_EQ(error_of_text("train: {time_limit_minutes: 3d}\n"),
            "a.yaml:1:9: train.time_limit_minutes: found \"3d\", want a number of minutes (90m and "
            "2h are fine too)");
}

TEST(LoadConfig, AValueOutOfRangeSaysTheRange) {
  expect_refused("train.target_accuracy=1", "found 1, want 0 or more, below 1");
  expect_refused("train.log_every_steps=0", "found 0, want 1 or more");
  expect_refused("model.layers=257", "found 257, want 1 to 256");
  expect_refused("train.max_samples=-1k", "found -1k, want 0 or more");
  expect_refused("optimizer.epsilon=0", "found 0, want 1e-30 to 1");
  expect_refused("model.hidden_dropout=0.99999999999", "found 0.99999999999, want 0 to 0.999");
  expect_refused("train.max_steps=99999999999999999999",
                 "found 99999999999999999999, want at most 1e15");
}

TEST(LoadConfig, AWordOutsideTheListNamesTheNearest) {
  expect_refused("data.exchange_padding=lenghts",
                 "found \"lenghts\", want off | allgather | lengths; did you mean lengths?");
}

TEST(LoadConfig, OtherNamesOfAValueLeadToIt) {
  EXPECT_THAT(error_of_set("train.backend=gpu"),
              HasSubstr("want auto | cpu | cuda; did you mean cuda?"));
  EXPECT_THAT(error_of_set("train.precision=bfloat16"), HasSubstr("; did you mean bf16?"));
}

TEST(LoadConfig, AnOverrideWithoutValueSaysHow) {
  EXPECT_EQ(error_of_set("train.seed"),
            "--set train.seed: found no \"=\", want key=value, such as --set train.seed=1");
}

TEST(LoadConfig, ReportsAllErrorsAtOnce) {
  const TempFolder folder;
  folder.write("b.yaml", "modle: {layers: 1}\n");
  const std::string file =
      folder.write("a.yaml", "include: b.yaml\ntrain:\n  seed: x\n  max_steps: -1\n");
  EXPECT_EQ(error_of(folder, {file}, {"eval.batch=3"}),
            "4 errors in the configuration:\n"
            "  b.yaml:1:1: modle: unknown key; did you mean model?\n"
            "  a.yaml:3:3: train.seed: found \"x\", want an integer\n"
            "  a.yaml:4:3: train.max_steps: found -1, want 0 or more\n"
            "  --set eval.batch=3: eval.batch: unknown key; did you mean eval.batch_seqs?");
}

TEST(LoadConfig, AWrongValueHidesNoContradictionOfOtherKeys) {
  const TempFolder folder;
  EXPECT_EQ(error_of(folder, {}, {"train.seed=-1", "model.heads=7"}),
            "2 errors in the configuration:\n"
            "  --set train.seed=-1: train.seed: found -1, want 0 or more\n"
            "  --set model.heads=7: model.heads = 7 does not divide model.hidden = 1024; choose a "
            "divisor of model.hidden");
  // What the value was meant to be is not known.
  EXPECT_THAT(error_of(folder, {}, {"model.hidden=many", "model.heads=7"}),
              Not(HasSubstr("does not divide")));
  EXPECT_THAT(error_of(folder, {}, {"model.hiden=2048", "model.heads=7"}),
              Not(HasSubstr("does not divide")));
}

TEST(LoadConfig, AnUnknownKeyHidesNoContradictionOfOtherKeys) {
  const TempFolder folder;
  EXPECT_EQ(error_of(folder, {}, {"train.sede=1", "model.heads=7"}),
            "2 errors in the configuration:\n"
            "  --set train.sede=1: train.sede: unknown key; did you mean train.seed?\n"
            "  --set model.heads=7: model.heads = 7 does not divide model.hidden = 1024; choose a "
            "divisor of model.hidden");
  // It may have been meant for any of them.
  EXPECT_THAT(error_of(folder, {}, {"zzzzzzzz=1", "model.heads=7"}),
              Not(HasSubstr("does not divide")));
}

/// Files of earlier versions list every key that these had.
TEST(Load, ARetiredKeyIsAWarningAndNothingElse) {
  const TempFolder folder;
  const CapturedLog log;
  const std::string file = folder.write("old.yaml", "log: {plots: false, run_name: a}\n");
  const LoadedConfig loaded = load_config({file}, {{"log.plots=true", "--set log.plots=true"}});
  EXPECT_EQ(loaded.config.log.run_name, "a");
  ASSERT_EQ(log.lines.size(), 2u);
  EXPECT_EQ(log.lines[0].level, LogLevel::kWarning);
  EXPECT_THAT(log.lines[0].text, EndsWith("old.yaml:1:7: log.plots is retired; "
                                          "bertha-tools plot draws the curves of a run"));
  EXPECT_THAT(log.lines[1].text, StartsWith("--set log.plots=true: log.plots is retired; "));
}

TEST(Load, TheTrustRatioOfEarlierVersionsChoosesTheOptimizer) {
  const TempFolder folder;
  const CapturedLog log;
  const std::string file = folder.write("old.yaml", "optimizer: {trust_ratio: false}\n");
  const OptimizerConfig optimizer = load_config({file}, {}).config.optimizer;
  EXPECT_EQ(optimizer.name, OptimizerName::kAdamw);
  EXPECT_EQ(optimizer.base_learning_rate, kAdamwLearningRate);
  EXPECT_EQ(log.lines.size(), 1u);
  const std::string back = "optimizer.trust_ratio=true";
  EXPECT_EQ(load_config({file}, {{back, "--set " + back}}).config.optimizer.name,
            OptimizerName::kLamb);
  EXPECT_THAT(error_of(folder, {}, {"optimizer.trust_ratio=perhaps"}),
              HasSubstr("want true or false"));
}

TEST(Load, AnOptimizerHasALearningRateOfItsOwnUnlessOneIsSet) {
  EXPECT_EQ(load_config({}, {}).config.optimizer.base_learning_rate, 4.25e-4);
  const Override adamw{"optimizer.name=adamw", "--set optimizer.name=adamw"};
  EXPECT_EQ(load_config({}, {adamw}).config.optimizer.base_learning_rate, kAdamwLearningRate);
  const Override rate{"optimizer.base_learning_rate=2e-5", "--lr 2e-5"};
  EXPECT_EQ(load_config({}, {rate, adamw}).config.optimizer.base_learning_rate, 2e-5);
}

}  // namespace
}  // namespace bertha

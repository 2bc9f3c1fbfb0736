#include "harness/mlperf/log_writer.h"
#include "data/files/new_file.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "data/files/text_file.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/report/fixtures.h"
#include "tests/support/words.h"

namespace bertha {
namespace {

using nlohmann::json;

/// A whole run whose clock ticks 7 ms per record.
std::vector<std::string> recorded_lines(const std::string& path) {
  int64_t now = 1715252859434;
  MlperfLog log(path, [&now] { return now += 7; });
  log.init_start(test::test_config());
  log.init_stop(test::test_config(), test::test_facts());
  log.run_start(0);
  for (const int64_t step : {335, 670}) {
    log.eval_start(step * 448);
    log.eval_stop(test::test_eval(step, step == 335 ? 0.51 : 0.7203));
  }
  log.run_stop({.status = "success", .samples = 670 * 448}, 10000);
  return test::lines_of(path);
}

std::vector<json> recorded(const std::string& path) {
  std::vector<json> records;
  for (const std::string& line : recorded_lines(path)) {
    EXPECT_THAT(line, StartsWith(":::MLLOG {"));
    records.push_back(json::parse(line.substr(9)));
  }
  return records;
}

TEST(MlperfLog, ALineIsByteForByteWhatThePythonLibraryWrites) {
  const TempFolder folder;
  const std::string line = recorded_lines(folder.path("log")).front();
  EXPECT_THAT(line, MatchesRegex(":::MLLOG \\{\"namespace\": \"\", \"time_ms\": 1715252859441, "
                                 "\"event_type\": \"POINT_IN_TIME\", \"key\": \"cache_clear\", "
                                 "\"value\": true, \"metadata\": \\{\"file\": "
                                 "\"harness/mlperf/log_writer.cpp\", \"lineno\": [0-9]+\\}\\}"));
}

TEST(MlperfLog, CachesCountAsClearedOnlyWhenTheConfigSaysSo) {
  const TempFolder folder;
  for (const bool cleared : {false, true}) {
    Config config = test::test_config();
    config.mlperf.cache_cleared = cleared;
    const std::string path = folder.path(cleared ? "cleared" : "default");
    MlperfLog(path).init_start(config);
    const json record = json::parse(test::lines_of(path).front().substr(9));
    EXPECT_EQ(record["key"], "cache_clear");
    EXPECT_EQ(record["value"], cleared);
  }
  EXPECT_FALSE(Config().mlperf.cache_cleared);
}

TEST(MlperfLog, KeysComeInTheOrderOfPublishedLogs) {
  const TempFolder folder;
  Words keys;
  for (const json& record : recorded(folder.path("log"))) keys.push_back(record["key"]);
  EXPECT_EQ(keys, split("cache_clear init_start submission_benchmark submission_org "
                        "submission_division submission_status submission_platform seed "
                        "global_batch_size d_batch_size gradient_accumulation_steps "
                        "max_predictions_per_seq opt_learning_rate_training_steps num_warmup_steps "
                        "weights_initialization weights_initialization opt_base_learning_rate "
                        "opt_lamb_epsilon opt_epsilon opt_lamb_beta_1 opt_lamb_beta_2 "
                        "opt_lamb_weight_decay_rate opt_learning_rate_warmup_steps "
                        "opt_lamb_learning_rate_decay_poly_power start_warmup_step init_stop "
                        "run_start epoch_start block_start eval_start eval_stop eval_accuracy "
                        "tracked_stats eval_start eval_stop eval_accuracy tracked_stats block_stop "
                        "epoch_stop train_samples eval_samples run_stop"));
}

TEST(MlperfLog, FactsCarryTheValuesOfConfigAndRun) {
  const TempFolder folder;
  std::map<std::string, json> values;
  for (const json& record : recorded(folder.path("log"))) values[record["key"]] = record["value"];
  const std::map<std::string, json> wanted = {{"submission_benchmark", "bert"},
                                              {"submission_org", "A \"quoted\" org"},
                                              {"submission_division", "closed"},
                                              {"submission_status", "onprem"},
                                              {"submission_platform", "2x\ttab"},
                                              {"seed", 4711},
                                              {"global_batch_size", 448},
                                              {"d_batch_size", 28},
                                              {"gradient_accumulation_steps", 2},
                                              {"max_predictions_per_seq", 75},
                                              {"opt_learning_rate_training_steps", 7100},
                                              {"num_warmup_steps", 100},
                                              {"opt_base_learning_rate", 3.5e-4},
                                              {"opt_lamb_epsilon", 2e-6},
                                              {"opt_epsilon", 2e-6},
                                              {"opt_lamb_beta_1", 0.83},
                                              {"opt_lamb_beta_2", 0.925},
                                              {"opt_lamb_weight_decay_rate", 0.0166629},
                                              {"opt_learning_rate_warmup_steps", 100},
                                              {"opt_lamb_learning_rate_decay_poly_power", 1.5},
                                              {"start_warmup_step", -25},
                                              {"eval_accuracy", 0.7203},
                                              {"tracked_stats", {{"throughput", 6100.0}}},
                                              {"train_samples", 670 * 448},
                                              {"eval_samples", 10000}};
  for (const auto& [key, value] : wanted) EXPECT_EQ(values[key], value) << key;
}

TEST(MlperfLog, IntervalsAndEvaluationsCarryTheSamplesTrained) {
  const TempFolder folder;
  const std::map<std::string, json> wanted = {
      {"epoch_start", {{"epoch_num", 0}}},
      {"block_start", {{"first_epoch_num", 1}, {"epoch_count", 1}}},
      {"eval_start", {{"epoch_num", 670 * 448}}},
      {"eval_stop", {{"epoch_num", 670 * 448}}},
      {"eval_accuracy", {{"epoch_num", 670 * 448}}},
      {"block_stop", {{"first_epoch_num", 1}}},
      {"epoch_stop", {{"epoch_num", 670 * 448}}},
      {"run_stop", {{"status", "success"}}}};
  std::map<std::string, json> found;
  for (const json& record : recorded(folder.path("log"))) {
    json metadata = record["metadata"];
    EXPECT_TRUE(metadata["lineno"].is_number_integer());
    metadata.erase("file");
    metadata.erase("lineno");
    found[record["key"]] = metadata;
  }
  for (const auto& [key, metadata] : wanted) EXPECT_EQ(found[key], metadata) << key;
}

TEST(MlperfLog, IntervalsStartAndEndAndTheRestArePoints) {
  const TempFolder folder;
  for (const json& record : recorded(folder.path("log"))) {
    const std::string key = record["key"];
    const std::string wanted = key.ends_with("_start")  ? "INTERVAL_START"
                               : key.ends_with("_stop") ? "INTERVAL_END"
                                                        : "POINT_IN_TIME";
    EXPECT_EQ(record["event_type"], wanted) << key;
  }
}

TEST(MlperfLog, TrainingStepsTakeThePlaceOfAMissingScheduleLength) {
  const TempFolder folder;
  Config config = test::test_config();
  config.optimizer.schedule_steps = 0;
  MlperfLog log(folder.path("log"));
  log.init_stop(config, test::test_facts());
  const std::string text = read_text_file(folder.path("log"));
  EXPECT_THAT(text, HasSubstr("\"key\": \"opt_learning_rate_training_steps\", \"value\": 6700,"));
}

TEST(MlperfLog, TheEnergyIsAStatisticBeforeTheEnd) {
  const TempFolder folder;
  MlperfLog log(folder.path("log"));
  log.run_stop({.status = "success", .samples = 200, .joules = 5000}, 10000);
  const std::vector<std::string> lines = test::lines_of(folder.path("log"));
  const json record = json::parse(lines.at(lines.size() - 2).substr(9));
  EXPECT_EQ(record["key"], "tracked_stats");
  EXPECT_EQ(record["value"], (json{{"joules", 5000}, {"joules_per_sample", 25}}));
}

TEST(MlperfLog, EachStartOfARunFolderGetsTheNextFreeFile) {
  const TempFolder folder;
  for (const char* name : {"result_0.txt", "result_0.resume1.txt", "result_0.resume2.txt"}) {
    const std::string path = next_mlperf_log_path(folder.path());
    EXPECT_EQ(path, folder.path(name));
    write_new_file(path, "");
  }
}

TEST(SpacedJson, HasPythonsSpacingAndEscapes) {
  // python3 -c 'import json; print(json.dumps({...}))'
  const nlohmann::ordered_json value = {{"b", {1, 2.5, nullptr, true}},
                                        {"a", nlohmann::ordered_json::object()},
                                        {"e", nlohmann::ordered_json::array()},
                                        {"text", "\"q\" \\ \n \u00e4"}};
  EXPECT_EQ(spaced_json(value),
            "{\"b\": [1, 2.5, null, true], \"a\": {}, \"e\": [], \"text\": "
            "\"\\\"q\\\" \\\\ \\n \\u00e4\"}");
}

}  // namespace
}  // namespace bertha

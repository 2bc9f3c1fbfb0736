#include "harness/mlperf/log_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/mlperf/log_writer.h"
#include "harness/mlperf/submission.h"
#include "tests/harness/report/fixtures.h"
#include "tests/support/error_of.h"
#include "tests/support/words.h"

namespace bertha {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kMinuteMs = 60'000;
const char* const kPlace = "{\"file\": \"a.py\", \"lineno\": 7}";

std::string record(const std::string& key, const std::string& value = "null",
                   const std::string& metadata = "{}", int64_t time_ms = 1000) {
  return concat(":::MLLOG {\"namespace\": \"\", \"time_ms\": ", time_ms,
                ", \"event_type\": \"POINT_IN_TIME\", \"key\": \"", key, "\", \"value\": ", value,
                ", \"metadata\": ", metadata, "}");
}

/// A log without fault, one record per line, written by hand here and not by MlperfLog.
std::vector<std::string> good_log() {
  return {record("cache_clear", "true"),
          record("init_start"),
          record("submission_benchmark", "\"bert\""),
          record("submission_org", "\"us\""),
          record("submission_division", "\"closed\""),
          record("submission_status", "\"onprem\""),
          record("submission_platform", "\"box\""),
          record("seed", "12", kPlace),
          record("global_batch_size", "448"),
          record("gradient_accumulation_steps", "1"),
          record("opt_learning_rate_training_steps", "6700"),
          record("num_warmup_steps", "0"),
          record("opt_base_learning_rate", "0.000425"),
          record("opt_lamb_epsilon", "1e-06"),
          record("opt_lamb_beta_1", "0.9"),
          record("opt_lamb_beta_2", "0.999"),
          record("opt_lamb_weight_decay_rate", "0.01"),
          record("opt_learning_rate_warmup_steps", "0"),
          record("start_warmup_step", "0"),
          record("init_stop"),
          record("run_start"),
          record("epoch_start", "null", "{\"epoch_num\": 0}"),
          record("block_start", "null", "{\"first_epoch_num\": 1, \"epoch_count\": 1}"),
          record("eval_start", "null", "{\"epoch_num\": 150080}"),
          record("eval_stop", "null", "{\"epoch_num\": 150080}"),
          record("eval_accuracy", "0.7201", "{\"epoch_num\": 150080}"),
          record("block_stop", "null", "{\"first_epoch_num\": 1}"),
          record("epoch_stop", "null", "{\"epoch_num\": 150080}"),
          record("train_samples", "150080"),
          record("eval_samples", "10000"),
          record("run_stop", "null", "{\"status\": \"success\"}")};
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

size_t line_of(const std::vector<std::string>& log, const std::string& key) {
  for (size_t i = 0; i < log.size(); ++i) {
    if (log[i].find("\"key\": \"" + key + "\"") != std::string::npos) return i;
  }
  fail(ExitCode::kInternal, key, ": not in the log");
}

/// "12 error: text" per finding.
std::vector<std::string> findings(const std::vector<std::string>& log,
                                  const MlperfCheckOptions& options = {}) {
  std::vector<std::string> texts;
  for (const LogFinding& finding : check_mlperf_text(joined(log), options).findings) {
    texts.push_back(
        concat(finding.line,
               finding.level == FindingLevel::kError ? " error: " : " warning: ", finding.text));
  }
  return texts;
}

std::vector<std::string> with(const std::string& key, const std::string& replacement) {
  std::vector<std::string> log = good_log();
  log[line_of(log, key)] = replacement;
  return log;
}

std::vector<std::string> without(const std::string& key) {
  std::vector<std::string> log = good_log();
  log.erase(log.begin() + static_cast<std::ptrdiff_t>(line_of(log, key)));
  return log;
}

TEST(MlperfCheck, ALogWithoutFaultHasNoFinding) {
  EXPECT_THAT(findings(good_log()), IsEmpty());
  EXPECT_EQ(check_mlperf_text(joined(good_log())).records, 31);
}

TEST(MlperfCheck, WhatOurOwnLogWritesComplies) {
  const TempFolder folder;
  MlperfLog log(folder.path("result_0.txt"));
  log.init_start(test::test_config());
  log.init_stop(test::test_config(), test::test_facts());
  log.run_start(0);
  log.eval_start(150080);
  log.eval_stop(test::test_eval(335, 0.7203));
  log.run_stop({.status = "success", .samples = 150080, .joules = 9e6}, 10000);
  const MlperfCheckResult result = check_mlperf_log(folder.path("result_0.txt"));
  EXPECT_TRUE(result.passed());
  EXPECT_TRUE(result.findings.empty()) << check_report("", result);
}

TEST(MlperfCheck, EveryRequiredKeyThatIsMissingIsAnError) {
  for (const std::string& key :
       split("cache_clear init_start submission_benchmark submission_division seed "
             "global_batch_size gradient_accumulation_steps opt_learning_rate_training_steps "
             "num_warmup_steps opt_base_learning_rate opt_lamb_epsilon opt_lamb_beta_1 "
             "opt_lamb_beta_2 opt_lamb_weight_decay_rate opt_learning_rate_warmup_steps "
             "start_warmup_step init_stop run_start eval_accuracy train_samples eval_samples "
             "run_stop")) {
    EXPECT_THAT(findings(without(key)), testing::Contains(concat("0 error: ", key, ": missing")));
  }
}

TEST(MlperfCheck, TheSubmittersKeysAreRequiredByRuleSet400AndAdvisedBy500) {
  for (const char* key : {"submission_org", "submission_platform", "submission_status"}) {
    const std::vector<std::string> empty = with(key, record(key, "\"\""));
    EXPECT_THAT(findings(without(key)), ElementsAre(concat("0 warning: ", key, ": missing")));
    EXPECT_THAT(findings(without(key), {.rule_set = RuleSet::k4_0_0}),
                ElementsAre(concat("0 error: ", key, ": missing")));
    EXPECT_THAT(findings(empty), ElementsAre(HasSubstr(concat(" warning: ", key, ": value "))));
    EXPECT_THAT(findings(empty, {.rule_set = RuleSet::k4_0_0}),
                ElementsAre(HasSubstr(concat(" error: ", key, ": value "))));
  }
}

TEST(MlperfCheck, EpochsByTheSamplesCountAreNewInRuleSet500) {
  for (const char* key : {"epoch_start", "epoch_stop"}) {
    const std::vector<std::string> log = with(key, record(key, "null", "{\"samples_count\": 5}"));
    EXPECT_THAT(findings(log), IsEmpty());
    EXPECT_THAT(findings(log, {.rule_set = RuleSet::k4_0_0}),
                ElementsAre(HasSubstr(concat(key, ": metadata has no epoch_num"))));
  }
}

TEST(MlperfCheck, AnOpenLogNeedsNoSeedAndNoOptimizerKeys) {
  for (const char* key : {"seed", "gradient_accumulation_steps", "global_batch_size",
                          "opt_base_learning_rate", "start_warmup_step"}) {
    std::vector<std::string> log = without(key);
    log[line_of(log, "submission_division")] = record("submission_division", "\"open\"");
    EXPECT_THAT(findings(log), ElementsAre(concat("0 warning: ", key, ": missing")));
  }
}

TEST(MlperfCheck, OneSourceLineLogsASeedOnce) {
  std::vector<std::string> log = good_log();
  log.push_back(record("seed", "12", "{\"file\": \"a.py\", \"lineno\": 8}"));
  log.push_back(record("seed", "13", kPlace));
  EXPECT_THAT(findings(log), IsEmpty());
  log.push_back(record("seed", "12", kPlace));
  EXPECT_THAT(findings(log), ElementsAre(HasSubstr("34 error: seed: the same source line")));
}

TEST(MlperfCheck, ARepeatedKeyIsAWarningWithTheSameValueAndAnErrorWithAnother) {
  std::vector<std::string> log = good_log();
  log.push_back(record("global_batch_size", "448"));
  EXPECT_THAT(findings(log), ElementsAre(HasSubstr("32 warning: global_batch_size: must occur "
                                                   "once, is already in line 9")));
  EXPECT_TRUE(check_mlperf_text(joined(log)).passed());
  log.back() = record("global_batch_size", "449");
  EXPECT_THAT(findings(log), ElementsAre(HasSubstr("32 error: global_batch_size: must occur "
                                                   "once, is already in line 9 with value 448")));
  EXPECT_FALSE(check_mlperf_text(joined(log)).passed());
}

TEST(MlperfCheck, EpochsAndBlocksMayStandForEachOther) {
  std::vector<std::string> log = without("block_start");
  EXPECT_THAT(findings(log), IsEmpty());
  log.erase(log.begin() + static_cast<std::ptrdiff_t>(line_of(log, "epoch_start")));
  EXPECT_THAT(findings(log), testing::Contains("0 error: block_start or epoch_start: missing"));
  EXPECT_THAT(findings(without("epoch_stop")), IsEmpty());
  EXPECT_THAT(findings(without("eval_start")), IsEmpty());
  log = without("eval_stop");
  EXPECT_THAT(findings(log), IsEmpty());
  log.erase(log.begin() + static_cast<std::ptrdiff_t>(line_of(log, "block_stop")));
  EXPECT_THAT(findings(log), ElementsAre("0 error: eval_stop or block_stop: missing"));
}

TEST(MlperfCheck, OfTwoRecordsOnOneLineTheFirstIsLost) {
  std::vector<std::string> log = good_log();
  const size_t line = line_of(log, "train_samples");
  log[line] += log[line + 1];
  log.erase(log.begin() + static_cast<std::ptrdiff_t>(line) + 1);
  EXPECT_THAT(findings(log),
              ElementsAre("29 warning: more than one record on this line; only the last is read",
                          "0 error: train_samples: missing"));
}

TEST(MlperfCheck, AnInterleavedRecordIsReportedAtItsLine) {
  std::vector<std::string> log = good_log();
  log[8] = log[8].substr(0, 40) + log[9].substr(0, 50);
  EXPECT_THAT(findings(log), testing::Contains(HasSubstr("9 error: the text after")));
  EXPECT_THAT(findings(log), testing::Contains(HasSubstr("9 warning: more than one record")));
}

TEST(MlperfCheck, ATornRecordAndOneWithTextBehindItAreErrors) {
  const std::string whole = record("seed", "12", kPlace);
  for (const std::string& broken : {whole.substr(0, whole.size() - 3), whole + " extra",
                                    std::string(":::MLLOG "), std::string(":::MLLOG [1]")}) {
    EXPECT_THAT(findings(with("seed", broken)),
                testing::Contains(HasSubstr("8 error: the text after")))
        << broken;
  }
}

TEST(MlperfCheck, ARecordLacksNoField) {
  for (const char* field : {"time_ms", "key", "value", "metadata"}) {
    std::string line = record("seed", "12", kPlace);
    line.replace(line.find(concat("\"", field)), 1 + std::string(field).size(), "\"other");
    EXPECT_THAT(findings(with("seed", line)),
                testing::Contains(concat("8 error: the record has no \"", field, "\"")));
  }
}

TEST(MlperfCheck, PrefixesOtherLinesAndForeignBytesAreNoFault) {
  std::vector<std::string> log = good_log();
  log[3] = "0: " + record("submission_org", "\"M\xfcller\"");  // one Latin-1 byte
  log[5].insert(0, "[1,0]<stdout>: ");
  log.insert(log.begin() + 4, "some other line with MLLOG in it");
  log.push_back(record("not_in_the_rules", "{\"a\": [1]}"));
  EXPECT_THAT(findings(log), IsEmpty());
}

TEST(MlperfCheck, TextOfANumberIsATimeAndOtherTextIsNot) {
  std::string line = record("seed", "12", kPlace);
  line.replace(line.find("1000"), 4, "\"1000.5\"");
  EXPECT_THAT(findings(with("seed", line)), IsEmpty());
  line.replace(line.find("\"1000.5\""), 8, "\"1.2.3\"");
  EXPECT_THAT(findings(with("seed", line)), testing::Contains(HasSubstr("8 error: time_ms")));
}

struct BadValue {
  const char* key;
  std::string line;
  const char* complaint;
};

TEST(MlperfCheck, EveryValueRuleFindsItsViolation) {
  const std::string samples = "{\"epoch_num\": 150080}";
  const std::vector<BadValue> cases = {
      {"submission_benchmark", record("submission_benchmark", "\"resnet\""), "must be \"bert\""},
      {"submission_division", record("submission_division", "\"ajar\""), "closed or open"},
      {"seed", record("seed", "\"twelve\"", kPlace), "integer"},
      {"seed", record("seed", "null", kPlace), "integer"},
      {"seed", record("seed", "12"), "file and lineno"},
      {"gradient_accumulation_steps", record("gradient_accumulation_steps", "0"), "above 0"},
      {"gradient_accumulation_steps", record("gradient_accumulation_steps", "\"1\""), "above 0"},
      {"train_samples", record("train_samples", "\"\""), "value is empty"},
      {"eval_samples", record("eval_samples", "\"\""), "value is empty"},
      {"run_stop", record("run_stop"), "metadata has no status"},
      {"run_stop", record("run_stop", "null", "\"status\""), "metadata has no status"},
      {"block_start", record("block_start"), "neither epoch_count nor samples_count"},
      {"block_start", record("block_start", "null", "{\"epoch_count\": 1}"), "first_epoch_num"},
      {"block_start", record("block_start", "null", "{\"epoch_count\": 0, \"first_epoch_num\": 1}"),
       "epoch_count must be above 0"},
      {"block_start", record("block_start", "null", "{\"samples_count\": -1}"),
       "samples_count must be at least 0"},
      {"block_stop", record("block_stop"), "neither first_epoch_num nor samples_count"},
      {"epoch_start", record("epoch_start"), "neither epoch_num nor samples_count"},
      {"epoch_stop", record("epoch_stop"), "neither epoch_num nor samples_count"},
      {"eval_start", record("eval_start"), "neither epoch_num nor samples_count"},
      {"eval_stop", record("eval_stop"), "neither epoch_num nor samples_count"},
      {"eval_accuracy", record("eval_accuracy", "0.73", "{\"samples_count\": 1}"), "no epoch_num"},
      {"eval_accuracy", record("eval_accuracy", "\"0.73\"", samples), "must be a number"},
  };
  for (const BadValue& bad : cases) {
    const size_t line = line_of(good_log(), bad.key) + 1;
    EXPECT_THAT(findings(with(bad.key, bad.line)),
                testing::Contains(
                    testing::AllOf(testing::StartsWith(concat(line, " error: ", bad.key, ": ")),
                                   HasSubstr(bad.complaint))))
        << bad.line;
  }
}

TEST(MlperfCheck, SamplesCountStandsForEpochsInBlocks) {
  std::vector<std::string> log =
      with("block_start", record("block_start", "null", "{\"samples_count\": 0}"));
  log[line_of(log, "block_stop")] = record("block_stop", "null", "{\"samples_count\": 9}");
  EXPECT_THAT(findings(log), IsEmpty());
}

/// The log with the record of `key` moved to the line of `before`.
std::vector<std::string> moved(const std::string& key, const std::string& before) {
  std::vector<std::string> log = good_log();
  const std::string line = log[line_of(log, key)];
  log = without(key);
  log.insert(log.begin() + static_cast<std::ptrdiff_t>(line_of(log, before)), line);
  return log;
}

TEST(MlperfCheck, IntervalsOutOfOrderAreErrors) {
  EXPECT_THAT(findings(moved("init_stop", "init_start")),
              testing::Contains(HasSubstr("init_stop: comes before init_start")));
  EXPECT_THAT(findings(moved("init_start", "run_start")),
              testing::Contains(HasSubstr("init_start: comes after init_stop")));
  EXPECT_THAT(findings(moved("run_start", "init_stop")),
              testing::ElementsAre(HasSubstr("run_start: comes before init_stop"),
                                   HasSubstr("init_stop: comes after run_start")));
  EXPECT_THAT(findings(moved("run_stop", "run_start")),
              testing::Contains(HasSubstr("run_stop: comes before run_start")));
  EXPECT_THAT(findings(moved("block_start", "run_start")),
              testing::ElementsAre(HasSubstr("block_start: comes before run_start")));
}

/// The log of a run whose initialisation starts this long before the rest.
std::vector<std::string> started_before(int64_t minutes) {
  std::vector<std::string> log = good_log();
  log[0] = record("cache_clear", "true", "{}", 1000 - minutes * kMinuteMs);
  log[1] = record("init_start", "null", "{}", 1000 - minutes * kMinuteMs);
  return log;
}

TEST(MlperfCheck, AClockThatIsSetBackIsAnError) {
  const auto stopped_at = [](int64_t time_ms) {
    return with("run_stop", record("run_stop", "null", "{\"status\": \"success\"}", time_ms));
  };
  EXPECT_THAT(findings(stopped_at(1000 - 60 * kMinuteMs)),
              ElementsAre("31 error: time_ms: 3600.0 s before that of line 1; the clock was set "
                          "back, so no duration of this log counts"));
  // Clocks of several machines in one log.
  EXPECT_THAT(findings(stopped_at(1)), IsEmpty());
  EXPECT_THAT(findings(stopped_at(-1)), testing::SizeIs(1));
  std::vector<std::string> later = stopped_at(1000 + 90 * kMinuteMs);
  later[25] = record("eval_accuracy", "0.7201", "{\"epoch_num\": 150080}", 1000 + 95 * kMinuteMs);
  later.erase(later.begin() + 26, later.begin() + 28);  // block_stop and epoch_stop
  EXPECT_THAT(findings(later), testing::Contains(HasSubstr("27 error: time_ms: 5700.0 s before "
                                                           "that of line 26")));
}

TEST(MlperfCheck, AMomentThatComesTwiceIsAnError) {
  for (const char* key : {"init_stop", "run_start", "run_stop"}) {
    std::vector<std::string> log = good_log();
    const size_t line = line_of(log, key);
    log.insert(log.begin() + static_cast<std::ptrdiff_t>(line), log[line]);
    EXPECT_THAT(findings(log), testing::Contains(HasSubstr(concat(
                                   line + 2, " error: ", key, ": must occur once, is already"))));
  }
}

TEST(MlperfCheck, InitialisationHasThirtyMinutesWhenClosedAndFourHoursWhenOpen) {
  EXPECT_THAT(findings(started_before(29)), IsEmpty());
  EXPECT_THAT(findings(started_before(30)),
              ElementsAre(HasSubstr("20 error: init_stop: comes 30.0 minutes after init_start")));
  std::vector<std::string> log = started_before(239);
  log[4] = record("submission_division", "\"open\"");
  EXPECT_THAT(findings(log), IsEmpty());
  log = started_before(240);
  log[4] = record("submission_division", "\"open\"");
  EXPECT_THAT(findings(log), ElementsAre(HasSubstr("allowed are 240")));
}

TEST(MlperfCheck, TheEarliestInitStartCounts) {
  std::vector<std::string> log = started_before(31);
  log.insert(log.begin() + 2, record("init_start"));
  EXPECT_THAT(findings(log), ElementsAre(HasSubstr("init_stop: comes 31.0 minutes after")));
}

TEST(MlperfCheck, SomeEvaluationReachesTheTargetAndStaysBelowOne) {
  const auto evaluated = [](const char* accuracy) {
    return with("eval_accuracy", record("eval_accuracy", accuracy, "{\"epoch_num\": 150080}"));
  };
  EXPECT_THAT(findings(evaluated("0.72")), IsEmpty());
  EXPECT_THAT(
      findings(evaluated("0.7199")),
      ElementsAre("0 error: eval_accuracy: no value in [0.720, 1) before run_stop, the best "
                  "is 0.7199"));
  EXPECT_THAT(findings(evaluated("1.0")), testing::SizeIs(1));
  EXPECT_THAT(findings(evaluated("0.31"), {.target_accuracy = 0.3}), IsEmpty());
  EXPECT_THAT(findings(evaluated("0.29"), {.target_accuracy = 0.3}), testing::SizeIs(1));

  std::vector<std::string> later_worse = good_log();
  later_worse.insert(later_worse.begin() + 26,
                     record("eval_accuracy", "0.5", "{\"epoch_num\": 300160}"));
  EXPECT_THAT(findings(later_worse), IsEmpty());

  std::vector<std::string> late = good_log();
  std::swap(late[line_of(late, "run_stop")], late[line_of(late, "eval_accuracy")]);
  EXPECT_THAT(findings(late), ElementsAre("0 error: eval_accuracy: no value in [0.720, 1) before "
                                          "run_stop, there is none"));
  EXPECT_FALSE(check_mlperf_text(joined(late)).reached_target);
  EXPECT_TRUE(check_mlperf_text(joined(good_log())).reached_target);

  std::vector<std::string> open = evaluated("0.1");
  open[4] = record("submission_division", "\"open\"");
  EXPECT_THAT(findings(open), IsEmpty());
}

/// The log with evaluations after these samples.
std::vector<std::string> evaluated_after(const std::vector<double>& samples) {
  std::vector<std::string> log = without("eval_accuracy");
  const auto place = log.begin() + static_cast<std::ptrdiff_t>(line_of(log, "block_stop"));
  std::vector<std::string> records;
  for (const double count : samples) {
    records.push_back(record("eval_accuracy", "0.7201", concat("{\"epoch_num\": ", count, "}")));
  }
  log.insert(place, records.begin(), records.end());
  return log;
}

TEST(MlperfCheck, EvaluationsComeAsOftenAsTheGlobalBatchWants) {
  // Whole steps of 448, what packed batches make of them, one more at the start or at the end.
  for (const std::vector<double>& good : {std::vector<double>{150'080, 300'160, 450'240},
                                          {149'600, 299'561, 450'227},
                                          {0, 150'080, 300'160},
                                          {150'080, 200'000}}) {
    EXPECT_THAT(findings(evaluated_after(good)), IsEmpty());
  }
  EXPECT_THAT(findings(evaluated_after({9'408, 18'816})),
              ElementsAre("0 warning: eval_accuracy: evaluation 1 comes after 9408 samples; with a "
                          "global batch of 448 the rule is every 150000, so after 150000"));
  EXPECT_THAT(findings(evaluated_after({9'408})), testing::SizeIs(1));
  EXPECT_THAT(findings(evaluated_after({150'080, 450'240})),
              ElementsAre(HasSubstr("evaluation 2 comes after 450240 samples")));
  EXPECT_THAT(findings(evaluated_after({150'080, 250'000, 450'240})),
              ElementsAre(HasSubstr("evaluation 2 comes after 250000 samples")));
  EXPECT_THAT(findings(evaluated_after({150'976})), testing::SizeIs(1));

  EXPECT_THAT(findings(evaluated_after({1e300})),
              ElementsAre(HasSubstr("evaluation 1 comes after 1e+300 samples; with a global")));
  EXPECT_THAT(findings(evaluated_after({9408.25})),
              ElementsAre(HasSubstr("evaluation 1 comes after 9408 samples; with a global")));

  std::vector<std::string> open = evaluated_after({9'408});
  open[4] = record("submission_division", "\"open\"");
  EXPECT_THAT(findings(open), IsEmpty());
  std::vector<std::string> large = evaluated_after({300'000, 600'000});
  large[line_of(large, "global_batch_size")] = record("global_batch_size", "13888");
  EXPECT_THAT(findings(large), IsEmpty());
}

TEST(MlperfCheck, ATextWithoutRecordsIsAnErrorAndAMissingFileIsDataError) {
  EXPECT_FALSE(check_mlperf_text("").passed());
  EXPECT_THAT(findings({"hello"}), testing::Contains("0 error: no record of the benchmark's log"));
  EXPECT_THAT(error_of([&] { check_mlperf_log("/nonexistent/result_0.txt"); }),
              HasSubstr("/nonexistent/result_0.txt"));
}

TEST(MlperfCheck, TheReportNamesFileLineAndVerdict) {
  std::vector<std::string> log = good_log();
  log.push_back(record("seed", "12"));
  EXPECT_THAT(check_report("r.txt", check_mlperf_text(joined(log))),
              testing::AllOf(testing::StartsWith("r.txt:32: error: seed: "),
                             testing::EndsWith("r.txt: 32 records, 1 error: does not comply with "
                                               "rule set 5.0.0 for BERT\n")));
  EXPECT_EQ(check_report("r.txt", check_mlperf_text(joined(good_log()))),
            "r.txt: 31 records, 0 errors: complies with rule set 5.0.0 for BERT\n");
}

TEST(MlperfCheck, ASubmissionIsOfOneDivision) {
  const TempFolder folder;
  std::vector<std::string> paths;
  for (int run = 0; run < 10; ++run) {
    std::vector<std::string> log = good_log();
    log[line_of(log, "seed")] = record("seed", std::to_string(run), kPlace);
    if (run == 3)
      log[line_of(log, "submission_division")] = record("submission_division", "\"open\"");
    paths.push_back(folder.write(concat("result_", run, ".txt"), joined(log)));
  }
  EXPECT_THAT(check_submission(paths).errors,
              ElementsAre(HasSubstr("result_3.txt: submission_division is open, want closed")));
}

}  // namespace
}  // namespace bertha

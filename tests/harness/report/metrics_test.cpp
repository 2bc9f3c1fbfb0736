#include "harness/report/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "kernels/base/tests/matchers.h"
#include "tests/harness/report/fixtures.h"

namespace bertha {
namespace {

using nlohmann::json;

TEST(Metrics, EveryLineIsOneObjectWithItsKind) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  file.run(test::test_config(), test::test_facts());
  file.step(test::test_step(7));
  file.eval(test::test_eval(7, 0.5));
  file.event("a \"quoted\"\nevent \xff");
  file.stop({.status = "success", .samples = 3136});
  std::vector<std::string> kinds;
  for (const std::string& line : test::lines_of(folder.path("m"))) {
    const json object = json::parse(line);
    EXPECT_GT(object.at("time_ms").get<int64_t>(), 1'600'000'000'000);
    kinds.push_back(object.at("kind"));
  }
  EXPECT_THAT(kinds, ElementsAre("run", "step", "eval", "event", "stop"));
}

TEST(Metrics, AStepAndAnEvaluationAreWrittenToTheLastDigit) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  const StepRecord step = test::test_step(7);
  file.step(step);
  file.eval(test::test_eval(7, 0.1 + 0.2));  // a value without a short decimal form
  const std::vector<std::string> lines = test::lines_of(folder.path("m"));
  const json written = json::parse(lines[0]), eval = json::parse(lines[1]);
  EXPECT_EQ(written["step"], 7);
  EXPECT_EQ(written["samples"], 3136);
  const std::pair<const char*, double> figures[] = {{"loss", step.loss},
                                                    {"mlm_loss", step.mlm_loss},
                                                    {"mlm_accuracy", step.mlm_accuracy},
                                                    {"learning_rate", step.learning_rate},
                                                    {"gradient_norm", step.gradient_norm},
                                                    {"loss_scale", step.loss_scale},
                                                    {"step_ms", step.step_ms},
                                                    {"data_wait_ms", step.data_wait_ms},
                                                    {"forward_ms", step.forward_ms},
                                                    {"backward_ms", step.backward_ms},
                                                    {"communication_ms", step.communication_ms},
                                                    {"optimizer_ms", step.optimizer_ms},
                                                    {"seqs_per_second", step.seqs_per_second},
                                                    {"tokens_per_second", step.tokens_per_second},
                                                    {"flops_per_second", step.flops_per_second},
                                                    {"token_imbalance", step.token_imbalance},
                                                    {"fp8_saturated", step.fp8_saturated},
                                                    {"nsp_loss", 0.75},
                                                    {"slowest_rank_compute_ms", 53.5},
                                                    {"power_watts", 5200}};
  for (const auto& [name, value] : figures) EXPECT_EQ(written[name], value) << name;
  EXPECT_EQ(written["skipped_steps"], 2);
  EXPECT_EQ(written["slowest_rank"], 5);
  EXPECT_EQ(written["memory_bytes"], int64_t{64} << 30);
  EXPECT_EQ(eval["step"], 7);
  EXPECT_EQ(eval["samples"], 3136);
  EXPECT_EQ(eval["mlm_accuracy"], 0.1 + 0.2);
  EXPECT_EQ(eval["nsp_accuracy"], 0.875);
}

TEST(Metrics, FiguresOfAHeadThatIsNotTrainedAreNull) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  file.step(test::without_next_sentence(test::test_step(1)));
  file.eval(test::without_next_sentence(test::test_eval(1, 0.5)));
  const std::vector<std::string> lines = test::lines_of(folder.path("m"));
  EXPECT_TRUE(json::parse(lines[0]).at("nsp_loss").is_null());
  EXPECT_TRUE(json::parse(lines[1]).at("nsp_accuracy").is_null());
}

TEST(Metrics, ALossThatIsNotFiniteIsNull) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  StepRecord step = test::test_step(1);
  step.mlm_loss = std::numeric_limits<double>::quiet_NaN();
  step.gradient_norm = std::numeric_limits<double>::infinity();
  file.step(step);
  const json written = json::parse(test::lines_of(folder.path("m"))[0]);
  EXPECT_TRUE(written["mlm_loss"].is_null());
  EXPECT_TRUE(written["gradient_norm"].is_null());
}

TEST(Metrics, TheEndHasTheEnergyWhereItIsKnown) {
  const TempFolder folder;
  MetricsFile file(folder.path("m"));
  file.stop({.status = "success", .samples = 200, .joules = 5000});
  file.stop({.status = "success", .samples = 200});
  file.stop({.status = "aborted", .samples = 0, .joules = 5000});
  const std::vector<std::string> lines = test::lines_of(folder.path("m"));
  EXPECT_EQ(json::parse(lines[0]).at("joules"), 5000);
  EXPECT_EQ(json::parse(lines[0]).at("joules_per_sample"), 25);
  EXPECT_FALSE(json::parse(lines[1]).contains("joules"));
  EXPECT_FALSE(json::parse(lines[2]).contains("joules_per_sample"));
}

TEST(Metrics, ARunSaysWhatItIs) {
  const TempFolder folder;
  Config config = test::test_config();
  config.checkpoint.init = "start/point";
  config.model.vocab_size = 4096;
  RunFacts facts = test::test_facts();
  facts.first_step = 40;
  MetricsFile file(folder.path("m"));
  file.run(config, facts);
  file.data(test::test_data_facts());
  const std::vector<std::string> lines = test::lines_of(folder.path("m"));
  const json run = json::parse(lines[0]);
  EXPECT_EQ(run["model"], "bert-tiny");
  EXPECT_EQ(run["parameters"], 340'000'000);
  EXPECT_EQ(run["vocab_size"], 4096);
  EXPECT_EQ(run["global_batch_seqs"], 448);
  EXPECT_EQ(run["first_step"], 40);
  EXPECT_EQ(run["target_accuracy"], 0.72);
  EXPECT_EQ(run["start_weights"], "start/point");
  EXPECT_EQ(json::parse(lines[1])["constant_answer_accuracy"], 0.05);
}

}  // namespace
}  // namespace bertha

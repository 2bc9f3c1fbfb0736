#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/harness/cli/bench_fixture.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

class BenchGainsTest : public BenchFixture {
 protected:
  BenchGainsTest() : BenchFixture("gains --steps 4 --lengths lengths.txt --svg gains.svg") {
    folder_.write("lengths.txt", "# length count\n10 5\n33 7\n64 9\n");
  }
  /// Rows of the last run by name.
  std::map<std::string, Json> rows() const {
    std::map<std::string, Json> found;
    const Json last = json();
    EXPECT_EQ(last["command"], "bench gains");
    for (const Json& row : last["rows"]) found[row["name"]] = row;
    return found;
  }
};

TEST_F(BenchGainsTest, EveryRowRunsOrSaysWhyNot) {
  const Ran ran = run("");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::string needs_16_bits = "needs a GPU and a train.precision of 16 bits";
  const std::map<std::string, std::string> refused{
      {"exchange", "needs 2 ranks or more"},
      {"exchange-ahead", "needs 2 ranks or more"},
      {"embedding-gradient", "needs a GPU"},
      {"embedding-half2", needs_16_bits},
      {"embedding-f32", needs_16_bits},
      {"batch-norm-mask", needs_16_bits},
      {"batch-norm-bytes", needs_16_bits},
      {"batch-norm-ballot", needs_16_bits},
      {"gelu-gemms", "needs a GPU"},
      {"gemm-plans", "needs a GPU and a file of plans, cuda.gemm_plans"},
      {"graphs", "needs a GPU"},
      {"attention-groups", "needs a GPU"},
      {"attention-persistent", "needs a GPU"},
      {"attention-streams", "needs a GPU"}};
  const std::map<std::string, Json> found = rows();
  EXPECT_EQ(found.size(), 27u);
  for (const auto& [name, row] : found) {
    const auto why = refused.find(name);
    EXPECT_EQ(row["reason"], why == refused.end() ? "" : why->second) << name;
    ASSERT_EQ(row.contains("gain_percent"), why == refused.end()) << name;
    if (!row.contains("off_ms")) continue;
    EXPECT_GT(row["off_ms"]["median"], 0) << name;
    EXPECT_GT(row["on_ms"]["median"], 0) << name;
    EXPECT_THAT(ran.out, HasSubstr("\n" + name + " "));
  }
  EXPECT_EQ(found.at("fp8")["on_ms"]["all"].size(), 4u);
  EXPECT_EQ(found.at("addto")["calls_per_step"], 4.0);  // two in each of two layers
  EXPECT_GT(found.at("addto")["step_gain_percent"].is_number(), 0);
  EXPECT_TRUE(std::filesystem::exists(folder_.path("gains.svg")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("runs")));
}

TEST_F(BenchGainsTest, PaddedBatchesHaveAsManySequencesAtFullLength) {
  const Ran ran = run("--only unpad-most,unpad-longest");
  ASSERT_EQ(ran.code, 0) << ran.err;
  for (const auto& [name, row] : rows()) {
    EXPECT_EQ(row["off_tokens"], 8 * 64) << name;
    EXPECT_LT(row["on_tokens"], 8 * 64) << name;
  }
}

TEST_F(BenchGainsTest, TwoRanksMeasureTheExchange) {
  const Ran ran = run_on_two_ranks("--only exchange,exchange-ahead");
  ASSERT_EQ(ran.code, 0) << ran.err;
  for (const auto& [name, row] : rows()) {
    EXPECT_EQ(row["reason"], "") << name;
    EXPECT_EQ(row["on_ms"]["all"].size(), 4u) << name;
  }
}

TEST_F(BenchGainsTest, AConfigurationThatCannotRunIsAnErrorAndNotAReason) {
  const Ran ran = run("--only rare-output --set train.precision=bf16");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("train.precision is bf16"));
}

TEST_F(BenchGainsTest, AnUnknownRowIsRefused) {
  const Ran ran = run("--only graph");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("--only graph is no row; want some of unpad-most,"));
}

}  // namespace
}  // namespace bertha

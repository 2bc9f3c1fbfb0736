#include "harness/doctor/diagnosis_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/base/tests/matchers.h"
#include "tests/harness/doctor/healthy_job.h"

namespace bertha {
namespace {

using testing::healthy_job;

std::string text_of(const std::vector<RankFacts>& ranks) {
  return report_of(diagnose(ranks), ranks).text();
}

TEST(DiagnosisText, HasARowPerNodeWithItsLowestFigures) {
  const std::string text = text_of(healthy_job(2, 8));
  EXPECT_THAT(text, ContainsRegex("node  *ranks  *GPUs  *GPU GEMM .*verdict\n"
                                  "node0 +0-7 +8 +782 TFLOP/s .*healthy\n"
                                  "node1 +8-15 +8 +782 TFLOP/s .*healthy\n"));
  EXPECT_THAT(text, HasSubstr("all-reduce of 16 ranks: 2.00 GB/s and 20 us over MPI, 180 GB/s "
                              "between GPUs\n"));
  EXPECT_THAT(text, EndsWith("2 of 2 nodes healthy; start the job with the same launcher\n"));
}

TEST(DiagnosisText, EndsWithWhichNodesToLeaveOut) {
  std::vector<RankFacts> ranks = healthy_job(3, 2);
  ranks[2].gpu_state.uncorrected_errors = 1;
  ranks[4].gpu_gemm_flops = 400e12;
  const std::string text = text_of(ranks);
  EXPECT_THAT(text, ContainsRegex("node1 .*SICK\nnode2 .*SICK\n"));
  EXPECT_THAT(text, HasSubstr("\nnode1: rank 2 (GPU 0000:10:00.0): 1 uncorrected"));
  EXPECT_THAT(text, EndsWith("not started: repair node1,node2 or leave it out (sbatch "
                             "--exclude=node1,node2, or another list of hosts), then run this "
                             "again\n"));
}

TEST(DiagnosisText, AloneThereIsNothingToCompareOrToLeaveOut) {
  std::vector<RankFacts> ranks = healthy_job(1, 1);
  ranks[0].host_reduce_bytes = -1;
  ranks[0].node_reduce_bytes = -1;
  EXPECT_THAT(text_of(ranks), HasSubstr("one rank: there are no other rates to compare with"));
  EXPECT_THAT(text_of(ranks), Not(HasSubstr("reduce")));
  ranks[0].shm_free_bytes = 0;
  EXPECT_THAT(text_of(ranks), EndsWith("not started: repair node0, then run this again\n"));
}

TEST(DiagnosisJson, HasVerdictsTroublesAndFigures) {
  std::vector<RankFacts> ranks = healthy_job(2, 2);
  ranks[3].gpu_gemm_flops = 100e12;
  const auto json = report_of(diagnose(ranks), ranks).json();
  EXPECT_EQ(json["healthy"], false);
  EXPECT_EQ(json["nodes"][0]["healthy"], true);
  EXPECT_EQ(json["nodes"][1]["host"], "node1");
  EXPECT_EQ(json["nodes"][1]["ranks"], (std::vector<int>{2, 3}));
  EXPECT_THAT(json["troubles"][0]["sentence"].get<std::string>(), HasSubstr("100 TFLOP/s"));
  EXPECT_EQ(json["ranks"][3]["gpu_gemm_flops"], 100e12);
}

}  // namespace
}  // namespace bertha

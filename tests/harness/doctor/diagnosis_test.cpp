#include "harness/doctor/diagnosis.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/matchers.h"
#include "tests/harness/doctor/healthy_job.h"

namespace bertha {
namespace {

using testing::healthy_job;
using ::testing::SizeIs;

/// The one trouble of a job of which this node alone is sick.
std::string only_trouble(const std::vector<RankFacts>& ranks, const std::string& sick_host) {
  const Diagnosis diagnosis = diagnose(ranks);
  EXPECT_FALSE(diagnosis.is_healthy());
  for (const NodeVerdict& node : diagnosis.nodes) {
    EXPECT_EQ(node.is_healthy, node.host != sick_host) << node.host;
  }
  EXPECT_THAT(diagnosis.troubles, SizeIs(1));
  if (diagnosis.troubles.empty()) return "";
  EXPECT_EQ(diagnosis.troubles[0].host, sick_host);
  EXPECT_TRUE(diagnosis.troubles[0].refuses);
  return diagnosis.troubles[0].sentence;
}

/// The one remark on a job that may start.
std::string only_remark(const std::vector<RankFacts>& ranks) {
  const Diagnosis diagnosis = diagnose(ranks);
  EXPECT_TRUE(diagnosis.is_healthy());
  EXPECT_THAT(diagnosis.troubles, SizeIs(1));
  return diagnosis.troubles.empty() ? "" : diagnosis.troubles[0].sentence;
}

TEST(Diagnose, AHealthyJobHasNoTrouble) {
  const Diagnosis diagnosis = diagnose(healthy_job(3, 8));
  EXPECT_TRUE(diagnosis.is_healthy());
  EXPECT_THAT(diagnosis.troubles, IsEmpty());
  ASSERT_THAT(diagnosis.nodes, SizeIs(3));
  EXPECT_EQ(diagnosis.nodes[1].host, "node1");
  EXPECT_THAT(diagnosis.nodes[1].ranks, ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
}

TEST(Diagnose, RanksInTurnOverNodesAreTheSameNodes) {
  std::vector<RankFacts> ranks = healthy_job(2, 2);
  std::swap(ranks[1].machine, ranks[2].machine);
  std::swap(ranks[1].host, ranks[2].host);
  const Diagnosis diagnosis = diagnose(ranks);
  ASSERT_THAT(diagnosis.nodes, SizeIs(2));
  EXPECT_THAT(diagnosis.nodes[0].ranks, ElementsAre(0, 2));
  EXPECT_THAT(diagnosis.nodes[1].ranks, ElementsAre(1, 3));
}

TEST(Diagnose, OneSlowGpuIsNamedWithItsClock) {
  std::vector<RankFacts> ranks = healthy_job(2, 8);
  ranks[11].gpu_gemm_flops = 690e12;
  ranks[11].gpu_state.sm_mhz = 1200;
  EXPECT_THAT(only_trouble(ranks, "node1"),
              HasSubstr("rank 11 (GPU 0000:13:00.0): GPU GEMM 690 TFLOP/s at 1200 of 1980 MHz, "
                        "want at least 707 TFLOP/s, 90 % of the median; look at power"));
}

TEST(Diagnose, ASlowNodeHasOneSentenceForAllItsRanks) {
  std::vector<RankFacts> ranks = healthy_job(4, 4);
  for (size_t i = 8; i < 12; ++i) ranks[i].host_copy_bytes = 3e9;
  EXPECT_THAT(only_trouble(ranks, "node2"), HasSubstr("ranks 8-11: host copy 3.00 GB/s, want"));
}

TEST(Diagnose, ASlowNetworkAdapterIsThatOfItsNode) {
  std::vector<RankFacts> ranks = healthy_job(4, 4);
  ranks[4].neighbor_bytes = 1e9;
  EXPECT_THAT(only_trouble(ranks, "node1"), HasSubstr("network 1.00 GB/s, want at least 1.80"));
}

TEST(Diagnose, ASlowLinkBetweenTheGpusOfANodeIsNamed) {
  std::vector<RankFacts> ranks = healthy_job(3, 2);
  for (size_t i = 2; i < 4; ++i) ranks[i].node_reduce_bytes = 40e9;
  EXPECT_THAT(only_trouble(ranks, "node1"), HasSubstr("ranks 2-3: node reduce 40.0 GB/s"));
}

TEST(Diagnose, TheBuildOfTheFewIsAnother) {
  std::vector<RankFacts> ranks = healthy_job(3, 2);
  for (size_t i = 0; i < 2; ++i) {
    ranks[i].version = "bertha 1.0.0 (one)\nbackends: cpu, cuda\nHDF5 1.14.0";
  }
  EXPECT_THAT(only_trouble(ranks, "node0"),
              HasSubstr("ranks 0-1: found the build \"HDF5 1.14.0\", want \"HDF5 1.10.8\""));
}

TEST(Diagnose, UncorrectedMemoryErrorsRefuseANode) {
  std::vector<RankFacts> ranks = healthy_job(2, 2);
  ranks[3].gpu_state.uncorrected_errors = 2;
  EXPECT_THAT(only_trouble(ranks, "node1"), HasSubstr("2 uncorrected memory errors (ECC), want 0"));
}

TEST(Diagnose, ANarrowOrSlowPcieLinkRefusesANode) {
  std::vector<RankFacts> narrow = healthy_job(2, 2);
  narrow[0].gpu_state.pcie_lanes = 8;
  EXPECT_THAT(only_trouble(narrow, "node0"), HasSubstr("PCIe generation 5 x8, want 5 x16"));
  std::vector<RankFacts> slow = healthy_job(2, 2);
  slow[0].gpu_state.pcie_generation = 3;
  EXPECT_THAT(only_trouble(slow, "node0"), HasSubstr("PCIe generation 3 x16, want 5 x16"));
}

TEST(Diagnose, ALinkThatTheDriverDoesNotTellIsNoTrouble) {
  std::vector<RankFacts> ranks = healthy_job(2, 2);
  ranks[0].gpu_state.pcie_lanes = 0;
  ranks[1].gpu_state.pcie_generation = 0;
  EXPECT_THAT(diagnose(ranks).troubles, IsEmpty());
}

TEST(Diagnose, ThrottlingByHardwareRefusesAndBySoftwareIsNamed) {
  std::vector<RankFacts> hard = healthy_job(2, 2);
  hard[1].gpu_state.throttle_reasons |= 0x80;
  EXPECT_THAT(only_trouble(hard, "node0"), HasSubstr("hardware power brake at 1500 of 1980 MHz"));
  std::vector<RankFacts> soft = healthy_job(2, 2);
  soft[1].gpu_state.throttle_reasons |= 0x20;
  EXPECT_THAT(only_remark(soft), HasSubstr("software thermal slowdown"));
}

TEST(Diagnose, AloneAGpuIsComparedWithItsDataSheetOnly) {
  std::vector<RankFacts> ranks = healthy_job(1, 1);
  EXPECT_THAT(diagnose(ranks).troubles, IsEmpty());
  ranks[0].host_copy_bytes = 1;
  EXPECT_THAT(diagnose(ranks).troubles, IsEmpty());
  ranks[0].gpu_gemm_flops = 590e12;
  EXPECT_THAT(only_trouble(ranks, "node0"),
              HasSubstr("want at least 594 TFLOP/s, 60 % of the data sheet's peak"));
  ranks[0].gpu = "NVIDIA Unknown";
  EXPECT_THAT(diagnose(ranks).troubles, IsEmpty());
}

TEST(Diagnose, WhatRunsBesideUsOnAGpuIsTrouble) {
  std::vector<RankFacts> ranks = healthy_job(1, 2);
  ranks[1].gpu_free_share = 0.5;
  EXPECT_THAT(only_trouble(ranks, "node0"), HasSubstr("GPU free 50.0 %, want at least 90.0 %"));
}

TEST(Diagnose, OtherCoresAndIdleGpusAreRemarks) {
  std::vector<RankFacts> cores = healthy_job(2, 2);
  cores[3].cores = 11;
  EXPECT_THAT(only_remark(cores), HasSubstr("11 cores, want 12"));
  std::vector<RankFacts> idle = healthy_job(1, 2);
  for (RankFacts& facts : idle) facts.gpus_seen = 8;
  EXPECT_THAT(only_remark(idle), HasSubstr("8 GPUs for 2 ranks"));
}

TEST(Diagnose, AGpuThatTheDriverSaysNothingOfIsARemark) {
  std::vector<RankFacts> ranks = healthy_job(1, 2);
  ranks[0].gpu_state = {.unread = "NVML cannot be loaded"};
  EXPECT_THAT(only_remark(ranks), HasSubstr("NVML cannot be loaded"));
}

TEST(Diagnose, LittleSpaceAndAFailedWriteRefuseANode) {
  std::vector<RankFacts> full = healthy_job(2, 2);
  full[2].output_free_bytes = 1e9;
  EXPECT_THAT(only_trouble(full, "node1"), HasSubstr("output free 0.93 GiB, want at least 8.00"));
  std::vector<RankFacts> failed = healthy_job(2, 2);
  failed[0].output_trouble = "--output-dir /x: no permission";
  EXPECT_THAT(only_trouble(failed, "node0"), HasSubstr("/x: no permission"));
}

TEST(RankFacts, SurviveTheirJson) {
  RankFacts facts = healthy_job(1, 1)[0];
  facts.gpu_state.unread = "why";
  facts.output_trouble = "a \"quoted\" trouble";
  const std::string text = to_json_text(facts);
  EXPECT_EQ(to_json_text(rank_facts_of(text)), text);
  EXPECT_EQ(rank_facts_of(text).gpu_gemm_flops, facts.gpu_gemm_flops);
  EXPECT_EQ(rank_facts_of(text).gpu_state.max_sm_mhz, 1980);
}

}  // namespace
}  // namespace bertha

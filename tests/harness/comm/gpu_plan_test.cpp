#include "harness/comm/gpu_plan.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

const std::vector<std::string> kThree{"0000:1b:00.0", "0000:3d:00.0", "0000:9a:00.0"};

std::string plan_refusal(const std::vector<RankGpus>& ranks, int self) {
  return error_of([&] { plan_gpu(ranks, self); }, ExitCode::kEnvironment);
}

TEST(GpuPlan, TheOrdinalIsThePlaceOnTheNode) {
  const std::vector<RankGpus> ranks{
      {"a", 0, kThree}, {"a", 1, kThree}, {"b", 0, kThree}, {"b", 1, kThree}, {"b", 2, kThree}};
  const std::vector<int> want{0, 1, 0, 1, 2};
  for (int self = 0; self < 5; ++self) {
    EXPECT_EQ(plan_gpu(ranks, self), want[static_cast<size_t>(self)]);
  }
}

TEST(GpuPlan, AGpuOfItsOwnIsOrdinalZeroForEveryRank) {
  const std::vector<RankGpus> ranks{{"a", 0, {kThree[2]}}, {"a", 1, {kThree[0]}}};
  EXPECT_EQ(plan_gpu(ranks, 0), 0);
  EXPECT_EQ(plan_gpu(ranks, 1), 0);
}

TEST(GpuPlan, RefusesMoreRanksThanGpusOnEveryRank) {
  std::vector<RankGpus> ranks;
  for (int r = 0; r < 4; ++r) ranks.push_back({"a", r, kThree});
  for (int self = 0; self < 4; ++self) {
    EXPECT_THAT(plan_refusal(ranks, self),
                HasSubstr("rank 3 is rank 4 of its node but sees only 3 GPUs"));
  }
}

TEST(GpuPlan, RefusesToShareAGpu) {
  const std::vector<RankGpus> ranks{
      {"a", 0, {kThree[0]}}, {"b", 0, {kThree[0]}}, {"a", 1, {kThree[0]}}};
  EXPECT_THAT(plan_refusal(ranks, 1), HasSubstr("ranks 0 and 2 would share GPU 0000:1b:00.0"));
}

TEST(GpuPlan, NamesTheHostOfARefusedRank) {
  const std::vector<RankGpus> none{{"a", 0, kThree, "node0"}, {"b", 0, {}, "node1"}};
  EXPECT_THAT(plan_refusal(none, 0), HasSubstr("no GPU is available to rank 1 on node1; see"));
  const std::vector<RankGpus> few{{"b", 2, {kThree[0], kThree[1]}, "node1"}};
  EXPECT_THAT(plan_refusal(few, 0),
              HasSubstr("rank 0 on node1 is rank 3 of its node but sees only 2"));
}

TEST(GpuPlan, RefusesARankWithoutAGpu) {
  const std::vector<RankGpus> ranks{{"a", 0, kThree}, {"b", 0, {}}};
  EXPECT_THAT(plan_refusal(ranks, 0), HasSubstr("no GPU is available to rank 1; see `nvidia-smi`"));
}

}  // namespace
}  // namespace bertha

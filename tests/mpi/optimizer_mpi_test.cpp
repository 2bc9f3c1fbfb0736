#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>

#include "harness/comm/grouped_collectives.h"
#include "kernels/base/tests/tolerance.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/lamb_state.h"
#include "tests/harness/optim/optimizer_runs.h"
#include "tests/mpi/pretended_nodes.h"
#include "tests/support/mpi_main.h"

namespace bertha::testing {
namespace {

RunResult run_over_mpi(const RunSpec& spec) {
  const std::unique_ptr<Device> device = make_cpu_device(1);
  const std::unique_ptr<Collectives> collectives = world().make_host_collectives(*device);
  return run_updates(*device, *collectives, spec);
}

/// The run in each grouping of the ranks into nodes of each size.
void for_each_grouping(const RunSpec& spec, const std::function<void(const RunResult&)>& check) {
  for (int ranks_per_node = 1; ranks_per_node <= world().size(); ++ranks_per_node) {
    if (world().size() % ranks_per_node != 0) continue;
    PretendedNodes nodes(ranks_per_node);
    for (const Grouping grouping : {Grouping::kNode, Grouping::kTwoLevels}) {
      SCOPED_TRACE(concat("grouping ", static_cast<int>(grouping), ", nodes of ", ranks_per_node));
      const std::unique_ptr<Device> device = make_cpu_device(1);
      const std::unique_ptr<Collectives> collectives = make_grouped_collectives(
          grouping, nodes, *device,
          [&](Level, World& ranks, Stream*) { return ranks.make_host_collectives(*device); });
      check(run_updates(*device, *collectives, spec));
    }
  }
}

void expect_weights(const RunResult& mine, const RunResult& want, const RunSpec& spec,
                    const std::string& what) {
  EXPECT_EQ(mine.model_weights, mine.master)
      << "weights of this rank and of their owners, " << what;
  for (size_t i = 0; i < spec.weights.size(); ++i) {
    ASSERT_NEAR(mine.master[i], want.master[i],
                tolerance::kLambF32 * std::max(1.0f, std::abs(want.master[i])))
        << "element " << i << ", " << what;
  }
}

class OptimizerOverMpi : public ::testing::TestWithParam<OptimizerName> {
 protected:
  OptimizerOverMpi() { spec.config.name = GetParam(); }

  RunSpec spec = ragged_spec();
};

INSTANTIATE_TEST_SUITE_P(Names, OptimizerOverMpi, ::testing::ValuesIn(kOptimizers),
                         [](const auto& test) { return std::string(word_of(test.param)); });

TEST_P(OptimizerOverMpi, InAnyGroupsOfRanksItEqualsUnshardedWithTheSameBitsOnEveryRank) {
  for (const ClipTime clip : {ClipTime::kAfter, ClipTime::kBefore}) {
    spec.config.clip = clip;
    spec.config.bucket_mib = 0.01;
    spec.final_from = {20000, 300};
    const RunResult want = run_on_threads(clip == ClipTime::kAfter ? 1 : world().size(), spec)[0];
    for_each_grouping(spec, [&](const RunResult& mine) {
      expect_weights(mine, want, spec, concat("clip ", word_of(clip)));
      std::vector<float> of_first = mine.model_weights;
      LambState first_state = mine.states.back();
      world().broadcast_bytes(std::as_writable_bytes(std::span(of_first)), 0);
      world().broadcast_bytes(std::as_writable_bytes(std::span(&first_state, 1)), 0);
      EXPECT_EQ(of_first, mine.model_weights);
      EXPECT_EQ(memcmp(&first_state, &mine.states.back(), sizeof(LambState)), 0);
    });
  }
}

TEST_P(OptimizerOverMpi, EqualsTheRunInThreadsWhereverTheGradientIsClipped) {
  for (const ClipTime clip : {ClipTime::kAfter, ClipTime::kBefore}) {
    for (const double bucket_mib : kBucketsMib) {
      spec.config.clip = clip;
      spec.config.bucket_mib = bucket_mib;
      spec.final_from = {};
      const RunResult threads = run_on_threads(world().size(), spec)[0];
      spec.final_from = {20000, 300};
      const RunResult mine = run_over_mpi(spec);
      EXPECT_EQ(mine.states.back().successful_steps, 5);
      expect_weights(mine, threads, spec,
                     concat("clip ", word_of(clip), ", buckets of ", bucket_mib, " MiB"));
    }
  }
}

}  // namespace
}  // namespace bertha::testing

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <span>

#include "harness/comm/grouped_collectives.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/harness/optim/optimizer_runs.h"
#include "tests/mpi/pretended_nodes.h"
#include "tests/support/mpi_main.h"
#include "tests/support/tolerance.h"

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

TEST(OptimizerOverMpi, InAnyGroupsOfRanksItEqualsUnshardedWithTheSameBitsOnEveryRank) {
  for (const char* clip : {"after", "before"}) {
    RunSpec spec = ragged_spec();
    spec.config.clip = clip;
    spec.config.bucket_mib = 0.01;
    spec.final_from = {20000, 300};
    const RunResult want =
        run_on_threads(std::string(clip) == "after" ? 1 : world().size(), spec)[0];
    for_each_grouping(spec, [&](const RunResult& mine) {
      EXPECT_EQ(mine.model_weights, mine.master) << "weights of this rank and of their owners";
      for (size_t i = 0; i < spec.weights.size(); ++i) {
        ASSERT_NEAR(mine.master[i], want.master[i],
                    tolerance::kLambF32 * std::max(1.0f, std::abs(want.master[i])))
            << "element " << i << ", clip " << clip;
      }
      std::vector<float> of_first = mine.model_weights;
      LambState first_state = mine.states.back();
      world().broadcast_bytes(std::as_writable_bytes(std::span(of_first)), 0);
      world().broadcast_bytes(std::as_writable_bytes(std::span(&first_state, 1)), 0);
      EXPECT_EQ(of_first, mine.model_weights);
      EXPECT_EQ(memcmp(&first_state, &mine.states.back(), sizeof(LambState)), 0);
    });
  }
}

TEST(OptimizerOverMpi, ShardedOverTheRanksEqualsUnsharded) {
  RunSpec spec = ragged_spec();
  const RunResult alone = run_on_threads(1, spec)[0];
  spec.final_from = {20000, 300};
  for (const double bucket_mib : kBucketsMib) {
    spec.config.bucket_mib = bucket_mib;
    const RunResult mine = run_over_mpi(spec);
    EXPECT_EQ(mine.model_weights, mine.master) << "weights of this rank and of their owners";
    EXPECT_EQ(mine.states.back().successful_steps, 5);
    for (size_t i = 0; i < spec.weights.size(); ++i) {
      ASSERT_NEAR(mine.master[i], alone.master[i],
                  tolerance::kLambF32 * std::max(1.0f, std::abs(alone.master[i])))
          << "element " << i << ", buckets of " << bucket_mib << " MiB";
    }
  }
}

TEST(OptimizerOverMpi, ProcessesAndThreadsAgreeWhereverTheGradientIsClipped) {
  for (const char* clip : {"after", "before"}) {
    RunSpec spec = ragged_spec();
    spec.config.clip = clip;
    const RunResult threads = run_on_threads(world().size(), spec)[0];
    const RunResult mine = run_over_mpi(spec);
    for (size_t i = 0; i < spec.weights.size(); ++i) {
      ASSERT_NEAR(mine.master[i], threads.master[i],
                  tolerance::kLambF32 * std::max(1.0f, std::abs(threads.master[i])))
          << "element " << i << ", clip " << clip;
    }
  }
}

TEST(OptimizerOverMpi, AnInfinityOnTheLastRankSkipsTheUpdateOnEveryRank) {
  RunSpec spec = ragged_spec();
  spec.steps = 2;
  const auto finite = spec.gradient;
  spec.gradient = [finite](int step, int rank, int ranks) {
    std::vector<float> part = finite(step, rank, ranks);
    if (step == 1 && rank == ranks - 1) part[70] = INFINITY;
    return part;
  };
  const RunResult result = run_over_mpi(spec);
  EXPECT_EQ(result.weights_by_step[1], result.weights_by_step[0]);
  EXPECT_EQ(result.states[1].skipped_steps, 1);
  EXPECT_EQ(result.states[1].successful_steps, 1);
}

TEST(OptimizerOverMpi, TheSameRunGivesTheSameBits) {
  const RunResult first = run_over_mpi(ragged_spec());
  const RunResult second = run_over_mpi(ragged_spec());
  EXPECT_EQ(first.master, second.master);
  EXPECT_EQ(first.m, second.m);
  EXPECT_EQ(first.v, second.v);
  EXPECT_EQ(memcmp(&first.states.back(), &second.states.back(), sizeof(LambState)), 0);
}

}  // namespace
}  // namespace bertha::testing

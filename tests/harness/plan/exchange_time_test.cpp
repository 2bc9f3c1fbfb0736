#include "harness/plan/exchange_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr double kMiB = 1 << 20;

Cluster cluster(int64_t nodes, const std::string& network = "ib-ndr400x8") {
  return {.ranks = 8 * nodes, .network = parse_network(network)};
}

TEST(Networks, HaveANameOrARate) {
  EXPECT_EQ(parse_network("ib-hdr200x8").bytes_per_second, 23e9);
  EXPECT_EQ(parse_network("12.5:30").bytes_per_second, 12.5e9);
  EXPECT_EQ(parse_network("12.5:30").latency_us, 30);
  EXPECT_EQ(parse_network("12.5").latency_us, 4);
  for (const char* const bad : {"", "ib", "0", "-1", "46:", "46:x", "46:-1", "nan", "1e9", "46 "}) {
    EXPECT_THROW(parse_network(bad), Error) << bad;
  }
}

TEST(Collectives, OfANodeTakeWhatNcclTook) {
  // H200s, NCCL 2.28, milliseconds. A copy runs at the 300 GB/s of the model, NCCL at 262 to 340.
  constexpr double kTolerance = 0.15;
  const auto near = [&](int64_t gpus, double mib, double ms) {
    const Cluster node{.ranks = gpus, .network = {}};
    EXPECT_NEAR(in_node_ms(node, mib * kMiB), ms, kTolerance * ms) << gpus << " " << mib;
  };
  near(8, 672, 1.84);
  near(8, 168, 0.49);
  near(8, 32, 0.12);
  near(2, 704, 1.35);
  EXPECT_EQ(in_node_ms({.ranks = 1, .network = {}}, 1e9), 0);
}

TEST(Collectives, TakeLongerBetweenMoreNodesButNotByARingOfThousands) {
  for (const double mib : {0.0, 1.0, 12.5, 84.0}) {
    for (int64_t nodes = 1; nodes < 600; ++nodes) {
      EXPECT_LE(between_nodes_ms(cluster(nodes), mib * kMiB),
                between_nodes_ms(cluster(nodes + 1), mib * kMiB))
          << nodes;
    }
  }
  EXPECT_LT(between_nodes_ms(cluster(434), 12.5 * kMiB), 2 * 433 * 0.004);
  EXPECT_EQ(between_nodes_ms(cluster(1), 1e9), 0);
  // Each GPU of 64 nodes sends and takes its eighth of 672 MiB once: 168 MiB at 46 GB/s.
  EXPECT_NEAR(between_nodes_ms(cluster(64), 84 * kMiB), 3.83, 0.15 * 3.83);
}

class Exchange : public testing::Test {
 protected:
  ExchangeTime of(const Cluster& gpus, double backward_ms, bool waits = false) {
    const ShardPlan shards = make_shard_plan(
        table_, {.shards = static_cast<int>(gpus.shards()), .bucket_elements = 52'428'800});
    return exchange_time({.cluster = gpus,
                          .table = &table_,
                          .shards = &shards,
                          .forward_ms = backward_ms / 2,
                          .backward_ms = backward_ms,
                          .apply_ms = 0.1,
                          .sums_wait_for_backward = waits});
  }

  ParamTable table_ = make_param_table(
      {.L = 24, .H = 1024, .A = 16, .D = 64, .F = 4096, .C = 30522, .V = 30528, .P = 512, .G = 2},
      DecayRule::kReference);
};

TEST_F(Exchange, HidesBehindALongPass) {
  const ExchangeTime time = of(cluster(1), 60);
  // What remains: the sum of the word table, complete at the end of backward, and its gathering.
  EXPECT_LT(time.sums_ms - time.hidden_sums_ms, 0.25 * time.sums_ms);
  EXPECT_LT(time.gathers_ms - time.hidden_gathers_ms, 0.25 * time.gathers_ms);
  EXPECT_GT(time.hidden_sums_ms, 0);
  EXPECT_GT(time.slowdown_ms, 0);
}

TEST_F(Exchange, IsExposedBehindAShortPassAndAClipBeforeIt) {
  const ExchangeTime longer = of(cluster(64), 60);
  const ExchangeTime shorter = of(cluster(64), 3);
  EXPECT_EQ(longer.sums_ms, shorter.sums_ms);
  EXPECT_LT(shorter.hidden_sums_ms, longer.hidden_sums_ms);
  EXPECT_LT(shorter.hidden_gathers_ms, longer.hidden_gathers_ms);
  EXPECT_NEAR(of(cluster(1), 60, true).hidden_sums_ms, 0, 1e-9);
  EXPECT_LT(of(cluster(64), 60, true).hidden_sums_ms, 0.5 * longer.hidden_sums_ms);
  EXPECT_EQ(of(cluster(64), 60, true).hidden_gathers_ms, longer.hidden_gathers_ms);
}

TEST_F(Exchange, SumsOfABucketGoBetweenNodesWhileTheNextIsInsideTheNode) {
  const ExchangeTime time = of(cluster(8), 60, true);
  EXPECT_LT(time.sums_ms - time.hidden_sums_ms, 0.9 * time.sums_ms);
  EXPECT_EQ(time.gathers_ms, of(cluster(1), 60).gathers_ms) << "weights come from the node";
}

TEST_F(Exchange, OfNodesOfOneGpuIsAllOnTheNetwork) {
  const Cluster apart{.ranks = 8, .ranks_per_node = 1, .network = parse_network("46")};
  EXPECT_EQ(apart.shards(), 8);
  const ExchangeTime time = of(apart, 60);
  EXPECT_DOUBLE_EQ(time.sums_ms, time.gathers_ms);
  EXPECT_NEAR(time.sums_ms, 2.0 * 336e6 * 7 / 8 / 46e6, 0.1 * time.sums_ms);
}

TEST_F(Exchange, OfShardsOnAllGpusGathersBetweenNodesWhatItNoLongerSums) {
  const Cluster each = cluster(8);
  Cluster all = each;
  all.state_in_each_node = false;
  EXPECT_EQ(each.shards(), 8);
  EXPECT_EQ(all.shards(), 64);
  const ExchangeTime time = of(all, 60);
  EXPECT_DOUBLE_EQ(time.sums_ms, time.gathers_ms);
  const ExchangeTime of_each = of(each, 60);
  EXPECT_NEAR(time.sums_ms + time.gathers_ms, of_each.sums_ms + of_each.gathers_ms, 0.01);
}

TEST_F(Exchange, IsNothingForOneRank) {
  const ExchangeTime time = of({.ranks = 1, .network = {}}, 60);
  EXPECT_EQ(time.sums_ms + time.gathers_ms + time.slowdown_ms, 0);
}

}  // namespace
}  // namespace bertha

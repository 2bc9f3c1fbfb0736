#include "harness/comm/grouped_collectives.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "tests/mpi/pretended_nodes.h"
#include "tests/support/mpi_main.h"

namespace bertha::testing {
namespace {

// Elements of the smallest share: empty, ragged, above the one-round path of a sum (4 KiB).
constexpr int64_t kShares[] = {0, 1, 7, 33, 1025, 40001};

/// Collectives over all ranks in each grouping, with every number of ranks that a node can have.
void for_each_grouping(
    const std::function<void(Collectives& grouped, Grouping grouping, int ranks_per_node)>& check) {
  const std::unique_ptr<Device> device = make_cpu_device(1);
  for (int ranks_per_node = 1; ranks_per_node <= world().size(); ++ranks_per_node) {
    if (world().size() % ranks_per_node != 0) continue;
    PretendedNodes nodes(ranks_per_node);
    for (const Grouping grouping : {Grouping::kFlat, Grouping::kNode, Grouping::kTwoLevels}) {
      SCOPED_TRACE(concat("grouping ", static_cast<int>(grouping), ", nodes of ", ranks_per_node));
      const std::unique_ptr<Collectives> grouped = make_grouped_collectives(
          grouping, nodes, *device,
          [&](Level, World& ranks, Stream*) { return ranks.make_host_collectives(*device); });
      check(*grouped, grouping, ranks_per_node);
    }
  }
}

/// Whole numbers, whose sums are exact in any order.
template <class T>
std::vector<T> whole_values(int rank, int64_t count) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<T>((i % 1021 - 500) * (rank + 1)));
  return values;
}

/// Of all magnitudes, so that a sum in another order has other bits.
std::vector<float> mixed_values(int rank, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const double angle = 1.7 * static_cast<double>(i) + 31.0 * rank;
    values.push_back(static_cast<float>(std::ldexp(std::sin(angle), static_cast<int>(i % 24))));
  }
  return values;
}

template <class T>
View view_of(std::vector<T>& values) {
  return View(values.data(), kDTypeOf<T>, {static_cast<int64_t>(values.size())});
}

template <class T>
std::vector<T> part(const std::vector<T>& all, int64_t begin, int64_t count) {
  return {all.begin() + begin, all.begin() + begin + count};
}

template <class T>
void check_whole_sums(Collectives& grouped, int64_t count) {
  const int64_t total = count * grouped.shard_count();
  std::vector<T> sum(static_cast<size_t>(total));
  for (int rank = 0; rank < grouped.size(); ++rank) {
    const std::vector<T> values = whole_values<T>(rank, total);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  const int64_t begin = grouped.shard() * count;
  std::vector<T> full = whole_values<T>(grouped.rank(), total);
  std::vector<T> shard(static_cast<size_t>(count), T{99});
  grouped.reduce_scatter_sum(view_of(full), view_of(shard));
  EXPECT_EQ(shard, part(sum, begin, count)) << "apart";

  full = whole_values<T>(grouped.rank(), total);
  const View all = view_of(full);
  grouped.reduce_scatter_sum(all, all.rows(begin, count));
  EXPECT_EQ(part(full, begin, count), part(sum, begin, count)) << "in place";

  full = whole_values<T>(grouped.rank(), total);
  grouped.all_reduce_sum(view_of(full));
  EXPECT_EQ(full, sum);
}

template <class T>
void check_gather(Collectives& grouped, int64_t count) {
  const std::vector<T> want = whole_values<T>(0, count * grouped.shard_count());
  const int64_t begin = grouped.shard() * count;
  std::vector<T> shard = part(want, begin, count);
  std::vector<T> full(want.size(), T{99});
  grouped.all_gather(view_of(shard), view_of(full));
  EXPECT_EQ(full, want) << "apart";

  full.assign(want.size(), T{99});
  std::copy(shard.begin(), shard.end(), full.begin() + begin);
  const View all = view_of(full);
  grouped.all_gather(all.rows(begin, count), all);
  EXPECT_EQ(full, want) << "in place";
}

// Multiples that every number of shards up to four divides.
TEST(GroupedCollectives, SumsAndGathersLikeAFlatWorld) {
  for_each_grouping([](Collectives& grouped, Grouping, int) {
    for (const int64_t share : kShares) {
      SCOPED_TRACE(share);
      const int64_t count = share * 12 / grouped.shard_count();
      check_whole_sums<double>(grouped, count);
      check_whole_sums<float>(grouped, count);
      check_whole_sums<int64_t>(grouped, count);
      check_gather<double>(grouped, count);
      check_gather<float>(grouped, count);
      check_gather<uint8_t>(grouped, count);
    }
  });
}

TEST(GroupedCollectives, EveryShardIsCountedOnce) {
  for_each_grouping([](Collectives& grouped, Grouping grouping, int ranks_per_node) {
    EXPECT_EQ(grouped.rank(), world().rank());
    EXPECT_EQ(grouped.size(), world().size());
    const int shards = grouping == Grouping::kNode ? ranks_per_node : world().size();
    EXPECT_EQ(grouped.shard_count(), shards);
    std::vector<int64_t> holders(static_cast<size_t>(shards));
    holders[static_cast<size_t>(grouped.shard())] = grouped.is_first_of_shard() ? 1 : 0;
    grouped.all_reduce_sum(view_of(holders));
    EXPECT_EQ(holders, std::vector<int64_t>(holders.size(), 1));
  });
}

TEST(GroupedCollectives, SumsDifferFromFlatOnesByRoundingsAndNotFromRunToRun) {
  constexpr int64_t kTotal = 12 * 3331;
  std::vector<double> exact(kTotal);
  std::vector<double> magnitude(kTotal);
  for (int rank = 0; rank < world().size(); ++rank) {
    const std::vector<float> values = mixed_values(rank, kTotal);
    for (size_t i = 0; i < exact.size(); ++i) {
      exact[i] += static_cast<double>(values[i]);
      magnitude[i] += std::abs(static_cast<double>(values[i]));
    }
  }
  for_each_grouping([&](Collectives& grouped, Grouping, int) {
    const int64_t count = kTotal / grouped.shard_count();
    const auto sum = [&] {
      std::vector<float> full = mixed_values(world().rank(), kTotal);
      std::vector<float> shard(static_cast<size_t>(count));
      grouped.reduce_scatter_sum(view_of(full), view_of(shard));
      std::vector<float> all(full.size());
      grouped.all_gather(view_of(shard), view_of(all));
      return all;
    };
    std::vector<float> first = sum();
    EXPECT_EQ(sum(), first);
    for (size_t i = 0; i < first.size(); ++i) {  // W - 1 additions, each rounded
      const double bound = (world().size() - 1) * std::ldexp(magnitude[i], -24);
      ASSERT_NEAR(static_cast<double>(first[i]), exact[i], bound) << i;
    }
    // Every rank has the bits of the first one.
    std::vector<float> of_first = first;
    world().broadcast_bytes(std::as_writable_bytes(std::span(of_first)), 0);
    EXPECT_EQ(std::memcmp(of_first.data(), first.data(), first.size() * sizeof(float)), 0);
  });
}

TEST(GroupedCollectives, TakesTheLargestOfAllRanks) {
  for_each_grouping([](Collectives& grouped, Grouping, int) {
    std::vector<int32_t> values{grouped.rank(), -grouped.rank()};
    grouped.all_reduce_max(view_of(values));
    EXPECT_EQ(values, (std::vector<int32_t>{grouped.size() - 1, 0}));
  });
}

TEST(GroupedCollectives, RefusesAShardOfAnotherSizeOrPlace) {
  for_each_grouping([](Collectives& grouped, Grouping, int) {
    std::vector<float> full(static_cast<size_t>(4 * grouped.shard_count()));
    const View all = view_of(full);
    EXPECT_THROW(grouped.reduce_scatter_sum(all, all.rows(0, 3)), Error);
    EXPECT_THROW(grouped.all_gather(all.rows(0, 3), all), Error);
  });
}

TEST(GroupedCollectives, ADifferentNodeIsSeenOnEveryRank) {
  for (int ranks_per_node = 1; ranks_per_node <= world().size(); ++ranks_per_node) {
    if (world().size() % ranks_per_node != 0) continue;
    PretendedNodes nodes(ranks_per_node);
    const bool is_one = ranks_per_node == world().size();
    EXPECT_EQ(choose_grouping(ShardGroup::kWorld, nodes),
              is_one || ranks_per_node == 1 ? Grouping::kFlat : Grouping::kTwoLevels);
    EXPECT_EQ(choose_grouping(ShardGroup::kNode, nodes),
              is_one ? Grouping::kFlat : Grouping::kNode);
    const std::unique_ptr<World> peers = nodes.make_peer_world();
    EXPECT_EQ(peers->size(), world().size() / ranks_per_node);
    EXPECT_EQ(peers->rank(), world().rank() / ranks_per_node);
  }
}

}  // namespace
}  // namespace bertha::testing

#include "data/pipeline/epoch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/tests/error_of.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

/// (shard, row)
using Sample = std::pair<int64_t, int64_t>;

std::vector<Sample> take(SampleWindows& windows, int64_t count) {
  std::vector<Sample> samples;
  while (static_cast<int64_t>(samples.size()) < count) {
    const SampleWindow window = windows.next();
    for (const ShardRow& sample : window.order) {
      samples.emplace_back(window.shards[static_cast<size_t>(sample.shard_in_window)], sample.row);
    }
  }
  samples.resize(static_cast<size_t>(count));
  return samples;
}

const std::vector<int64_t> kSmall{3, 0, 4, 2, 5};  // 14 samples

WindowedOrder small_windowed(int64_t first_position) {
  return {.seed = 11, .shard_seqs = kSmall, .window_shards = 2, .first_position = first_position};
}

PublishedOrder small_published(int rank, int64_t first_position) {
  return {.seed = 11,
          .shard_seqs = kSmall,
          .rank = rank,
          .num_ranks = 2,
          .batch_seqs = 2,
          .first_position = first_position};
}

// Known answers printed by tests/golden/make_epoch_plan_golden.py.
TEST(WindowedOrder, EqualsThePythonTranscription) {
  const std::vector<Sample> epoch_0{{3, 1}, {3, 0}, {0, 1}, {4, 3}, {4, 1}, {4, 2}, {4, 0},
                                    {4, 4}, {0, 0}, {0, 2}, {2, 3}, {2, 0}, {2, 1}, {2, 2}};
  const std::vector<Sample> epoch_3{{0, 2}, {0, 1}, {0, 0}, {2, 0}, {2, 1}, {2, 3}, {2, 2},
                                    {3, 0}, {3, 1}, {4, 4}, {4, 0}, {4, 2}, {4, 3}, {4, 1}};
  EXPECT_EQ(take(*make_windowed_order(small_windowed(0)), 14), epoch_0);
  EXPECT_EQ(take(*make_windowed_order(small_windowed(3 * 14)), 14), epoch_3);
}

TEST(PublishedOrder, EqualsThePythonTranscription) {
  const std::vector<Sample> rank_1{{0, 2}, {0, 1}, {2, 1}, {2, 0}, {2, 3}, {2, 2}, {4, 4}, {4, 2},
                                   {4, 0}, {4, 3}, {3, 1}, {3, 0}, {3, 0}, {3, 1}, {4, 1}, {4, 2},
                                   {4, 0}, {4, 3}, {2, 3}, {2, 2}, {2, 1}, {2, 0}, {0, 2}, {0, 1}};
  EXPECT_EQ(take(*make_published_order(small_published(1, 0)), 24), rank_1);
}

// Known answers printed by tests/golden/make_epoch_plan_golden.py: a digit for each rank, a word
// for each round.
TEST(PublishedOrder, RanksTakeThePublishedShardsInEachRound) {
  struct Case {
    int64_t num_shards;
    int num_ranks;
    std::string shards;
  };
  const std::vector<Case> cases{
      {2, 1, "0 1"},
      {2, 3, "101 101"},
      {2, 4, "1010 1010"},
      {2, 5, "10101 10101"},
      {2, 7, "0101010 0101010"},
      {2, 8, "10101010 10101010"},
      {2, 13, "0101010101010 0101010101010"},
      {3, 1, "2 0 1"},
      {3, 3, "120 120 120"},
      {3, 4, "1021 2102 0210"},
      {3, 5, "12012 20120 01201"},
      {3, 7, "0120120 2012012 1201201"},
      {3, 8, "21021021 10210210 02102102"},
      {3, 13, "2012012012012 1201201201201 0120120120120"},
      {5, 1, "1 2 4 0 3"},
      {5, 3, "230 412 304 123 041"},
      {5, 4, "2341 0234 1023 4102 3410"},
      {5, 5, "42310 42310 42310 42310 42310"},
      {5, 7, "3140231 2314023 0231402 4023140 1402314"},
      {5, 8, "12430124 24301243 43012430 30124301 01243012"},
      {5, 13, "1340213402134 3402134021340 4021340213402 0213402134021 2134021340213"},
  };
  for (const Case& example : cases) {
    std::string found;
    for (int64_t round = 0; round < example.num_shards; ++round) {
      if (round > 0) found += ' ';
      for (int rank = 0; rank < example.num_ranks; ++rank) {
        const auto shards = static_cast<size_t>(example.num_shards);
        const auto windows = make_published_order({.seed = 11,
                                                   .shard_seqs = std::vector<int64_t>(shards, 2),
                                                   .rank = rank,
                                                   .num_ranks = example.num_ranks,
                                                   .batch_seqs = 2,
                                                   .first_position = 2 * round});
        found += std::to_string(windows->next().shards.at(0));
      }
    }
    EXPECT_EQ(found, example.shards) << example.num_shards << " shards, " << example.num_ranks;
  }
}

TEST(WindowedOrder, EveryEpochHoldsEverySampleOnceInsideItsWindow) {
  const std::vector<int64_t> sizes{7, 33, 1, 0, 511, 20, 20, 3};
  const auto windows = make_windowed_order(
      {.seed = 5, .shard_seqs = sizes, .window_shards = 3, .first_position = 0});
  std::vector<std::vector<Sample>> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<Sample> samples;
    const std::vector<int64_t> places = shuffled_shards(5, epoch, 8);
    for (int64_t first_place : {0, 3, 6}) {
      const SampleWindow window = windows->next();
      EXPECT_EQ(window.epoch, epoch);
      EXPECT_EQ(window.first_place, first_place);
      EXPECT_EQ(window.shards,
                std::vector<int64_t>(places.begin() + first_place,
                                     places.begin() + std::min<int64_t>(first_place + 3, 8)));
      for (const ShardRow& sample : window.order) {
        samples.emplace_back(window.shards.at(static_cast<size_t>(sample.shard_in_window)),
                             sample.row);
      }
    }
    EXPECT_EQ(samples.size(), 595u);
    const std::set<Sample> distinct(samples.begin(), samples.end());
    EXPECT_EQ(distinct.size(), 595u);
    for (const auto& [shard, row] : distinct) {
      EXPECT_LT(row, sizes[static_cast<size_t>(shard)]);
    }
    epochs.push_back(samples);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(WindowedOrder, SeedsGiveDifferentOrders) {
  const auto order_of = [](uint64_t seed) {
    return take(*make_windowed_order(
                    {.seed = seed, .shard_seqs = {100}, .window_shards = 4, .first_position = 0}),
                100);
  };
  EXPECT_EQ(order_of(1), order_of(1));
  EXPECT_NE(order_of(1), order_of(2));
}

TEST(WindowedOrder, EveryPlaceIsEquallyLikely) {
  // 6 samples, 6000 epochs: each sample comes first about 1000 times; five standard deviations of
  // the binomial are 5 * sqrt(6000 * 1/6 * 5/6) = 144.
  const auto windows =
      make_windowed_order({.seed = 3, .shard_seqs = {6}, .window_shards = 1, .first_position = 0});
  std::map<int32_t, int> times_first;
  for (int epoch = 0; epoch < 6000; ++epoch) ++times_first[windows->next().order[0].row];
  for (int32_t row = 0; row < 6; ++row) EXPECT_NEAR(times_first[row], 1000, 144) << row;
}

TEST(WindowedOrder, AnyFirstPositionGivesTheTail) {
  const std::vector<Sample> whole = take(*make_windowed_order(small_windowed(0)), 50);
  for (int64_t first = 0; first < 50; ++first) {
    const std::vector<Sample> tail(whole.begin() + first, whole.end());
    ASSERT_EQ(take(*make_windowed_order(small_windowed(first)), 50 - first), tail) << first;
  }
}

TEST(PublishedOrder, AnyFirstPositionGivesTheTail) {
  const std::vector<Sample> whole = take(*make_published_order(small_published(0, 0)), 60);
  for (int64_t first = 0; first < 60; ++first) {
    const std::vector<Sample> tail(whole.begin() + first, whole.end());
    ASSERT_EQ(take(*make_published_order(small_published(0, first)), 60 - first), tail) << first;
  }
}

TEST(PublishedOrder, RanksReadDifferentShardsWhileThereAreEnough) {
  for (int64_t round = 0; round < 3; ++round) {
    std::set<int64_t> shards;
    for (int rank = 0; rank < 4; ++rank) {
      const auto windows = make_published_order({.seed = 1,
                                                 .shard_seqs = std::vector<int64_t>(12, 5),
                                                 .rank = rank,
                                                 .num_ranks = 4,
                                                 .batch_seqs = 1,
                                                 .first_position = 5 * round});
      shards.insert(windows->next().shards.at(0));
    }
    EXPECT_EQ(shards.size(), 4u);
  }
}

TEST(PublishedOrder, ShardsSmallerThanABatchAreADataError) {
  EXPECT_NE(error_of([] {
              make_published_order({.seed = 1,
                                    .shard_seqs = {3, 3},
                                    .rank = 0,
                                    .num_ranks = 1,
                                    .batch_seqs = 4,
                                    .first_position = 0});
            }).find("whole batch of 4"),
            std::string::npos);
}

}  // namespace
}  // namespace bertha

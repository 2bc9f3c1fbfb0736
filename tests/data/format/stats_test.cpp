#include "data/format/stats.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

/// A sample of that many tokens and masked positions.
void append_sample(SampleSet& samples, int64_t tokens, int64_t masked, int8_t label) {
  const std::vector<TokenId> ids(static_cast<size_t>(tokens), 7);
  const std::vector<int8_t> segments(static_cast<size_t>(tokens), 0);
  std::vector<int16_t> positions(static_cast<size_t>(masked));
  std::iota(positions.begin(), positions.end(), int16_t{1});
  const std::vector<TokenId> labels(positions.begin(), positions.end());
  samples.append({.id = samples.size(),
                  .token_ids = ids,
                  .segment_ids = segments,
                  .masked_positions = positions,
                  .masked_ids = labels,
                  .next_sentence_label = label});
}

TEST(Stats, AreThoseOfTheSamplesOfAllShards) {
  const TempFolder folder;
  SampleSet first, second;
  append_sample(first, 5, 1, 0);
  append_sample(first, 9, 2, 1);
  append_sample(second, 5, 3, 1);
  append_sample(second, 13, 2, 1);
  write_shard(folder.path("part_0.hdf5"), ShardLayout::kVariableLength, first);
  write_shard(folder.path("part_1.hdf5"), ShardLayout::kFixedLength, second);
  for (const int64_t threads : {1, 3}) {
    const DataStats stats = stats_of_data(folder.path(), {}, threads);
    EXPECT_EQ(stats.num_shards, 2);
    EXPECT_EQ(stats.num_samples, 4);
    EXPECT_EQ(stats.num_tokens, 32);
    EXPECT_EQ(stats.num_masked, 8);
    EXPECT_EQ(stats.num_random_next, 3);
    EXPECT_THAT(stats.token_length_histogram,
                ElementsAre(0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1));
    EXPECT_THAT(stats.masked_histogram, ElementsAre(0, 1, 2, 1));
    EXPECT_EQ(stats.shortest_tokens(), 5);
    EXPECT_EQ(stats.longest_tokens(), 13);
    EXPECT_DOUBLE_EQ(stats.mean_tokens(), 8.0);
    EXPECT_DOUBLE_EQ(stats.mean_masked(), 2.0);
    EXPECT_DOUBLE_EQ(stats.random_next_fraction(), 0.75);
    EXPECT_DOUBLE_EQ(stats.padding_fraction(16), 0.5);
  }
}

TEST(Stats, OfNoSamplesAreZero) {
  const DataStats stats;
  EXPECT_EQ(stats.longest_tokens(), 0);
  EXPECT_EQ(stats.shortest_tokens(), 0);
  EXPECT_EQ(stats.mean_tokens(), 0.0);
  EXPECT_EQ(stats.padding_fraction(512), 0.0);
  EXPECT_TRUE(histogram_lines(stats.token_length_histogram, 80).empty());
}

TEST(Stats, ADamagedShardIsADataError) {
  const TempFolder folder;
  for (int i = 0; i < 5; ++i) write_bytes(folder.path(concat("part_", i, ".hdf5")), "no");
  EXPECT_THAT(error_of([&] { stats_of_data(folder.path(), {}); }),
              HasSubstr("not a readable HDF5 file"));
}

TEST(HistogramLines, HaveTheWantedWidthAndBarsInProportion) {
  //                               0  1  2  3   4  5  6  7
  const std::vector<int64_t> counts{0, 0, 30, 70, 0, 0, 1, 0};
  EXPECT_THAT(histogram_lines(counts, 53, 4),
              ElementsAre("    2-    3 |####################|         100  99.0%",
                          "    4-    5 |                    |           0   0.0%",
                          "    6-    7 |#                   |           1   1.0%"));
  EXPECT_THAT(histogram_lines(counts, 43, 8),
              ElementsAre("    2-    2 |####      |          30  29.7%",
                          "    3-    3 |##########|          70  69.3%",
                          "    4-    4 |          |           0   0.0%",
                          "    5-    5 |          |           0   0.0%",
                          "    6-    6 |#         |           1   1.0%"));
}

}  // namespace
}  // namespace bertha

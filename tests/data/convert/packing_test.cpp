#include "data/convert/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "data/format/shard_reader.h"
#include "data/pipeline/bench_loader.h"
#include "kernels/base/tests/matchers.h"
#include "tests/support/temp_folder.h"

namespace bertha {
namespace {

/// Fails unless the plan holds every sequence once, in packs within the limits.
void expect_complete(std::span<const PackKind> plan, std::span<const int64_t> seqs_of_length,
                     const PackLimits& limits) {
  std::vector<int64_t> found(seqs_of_length.size());
  for (const PackKind& kind : plan) {
    EXPECT_GE(kind.count, 1);
    EXPECT_GE(std::ssize(kind.lengths), 1);
    EXPECT_LE(std::ssize(kind.lengths), limits.max_seqs);
    EXPECT_LE(std::accumulate(kind.lengths.begin(), kind.lengths.end(), int64_t{0}),
              limits.max_tokens);
    for (const int64_t length : kind.lengths) found[static_cast<size_t>(length)] += kind.count;
  }
  EXPECT_TRUE(std::equal(found.begin(), found.end(), seqs_of_length.begin()));
}

TEST(PackPlan, EverySequenceIsInOnePackWithinTheLimits) {
  std::mt19937_64 random(3);
  for (const int64_t max_tokens : {1, 5, 64, 512}) {
    for (const int64_t max_seqs : {1, 2, 3, 4, 8}) {
      for (int round = 0; round < 20; ++round) {
        std::vector<int64_t> seqs_of_length(static_cast<size_t>(max_tokens) + 1);
        for (size_t length = 1; length < seqs_of_length.size(); ++length) {
          if (random() % 3 > 0) continue;
          seqs_of_length[length] = static_cast<int64_t>(random() % (round < 10 ? 3 : 1000));
        }
        const PackLimits limits{.max_tokens = max_tokens, .max_seqs = max_seqs};
        expect_complete(plan_packs(seqs_of_length, limits), seqs_of_length, limits);
      }
    }
  }
}

TEST(PackPlan, PacksThatFillExactlyAreFound) {
  // 10 = 10, 7 + 2 + 1, 6 + 4, 5 + 5; two of 3 are left and go together.
  //                                        0  1  2  3  4  5  6  7  8  9 10
  const std::vector<int64_t> seqs_of_length{0, 1, 1, 2, 1, 2, 1, 1, 0, 0, 1};
  const auto plan = plan_packs(seqs_of_length, {.max_tokens = 10, .max_seqs = 3});
  std::vector<std::vector<int64_t>> packs;
  for (const PackKind& kind : plan) {
    for (int64_t i = 0; i < kind.count; ++i) packs.push_back(kind.lengths);
  }
  EXPECT_THAT(packs, ElementsAre(ElementsAre(10), ElementsAre(7, 2, 1), ElementsAre(6, 4),
                                 ElementsAre(5, 5), ElementsAre(3, 3)));
  EXPECT_THAT(plan_packs({}, {}), IsEmpty());
}

TEST(PackPlan, OneSequencePerPackIsNoPacking) {
  const std::vector<int64_t> seqs_of_length{0, 5, 0, 2};
  const auto figures = figures_of(plan_packs(seqs_of_length, {.max_tokens = 4, .max_seqs = 1}),
                                  {.max_tokens = 4, .max_seqs = 1});
  EXPECT_EQ(figures.num_packs, 7);
  EXPECT_EQ(figures.num_tokens, 11);
  EXPECT_DOUBLE_EQ(figures.seqs_per_pack, 1.0);
  EXPECT_DOUBLE_EQ(figures.efficiency, 11.0 / 28.0);
}

/// Lengths like those of Wikipedia.
std::vector<uint16_t> synthetic_lengths() {
  const TempFolder folder;
  write_synthetic_shard(folder.path("part_0.hdf5"), 20'000, 5, {});
  const auto counts = ShardRows(folder.path("part_0.hdf5")).token_counts();
  return {counts.begin(), counts.end()};
}

TEST(PackPlan, SequencesLikeThoseOfWikipediaFillPacksOfThree) {
  std::vector<int64_t> seqs_of_length(513);
  for (const uint16_t length : synthetic_lengths()) ++seqs_of_length[length];
  const auto efficiency = [&](int64_t max_seqs) {
    const PackLimits limits{.max_tokens = 512, .max_seqs = max_seqs};
    return figures_of(plan_packs(seqs_of_length, limits), limits).efficiency;
  };
  EXPECT_GT(efficiency(3), 0.985);
  EXPECT_GT(efficiency(2), 0.75);
  EXPECT_GE(efficiency(8), efficiency(3));
}

TEST(PackPlaces, PacksAreThoseOfThePlanInTheOrderOfTheSeed) {
  const std::vector<uint16_t> tokens = synthetic_lengths();
  std::vector<int64_t> seqs_of_length(513);
  for (const uint16_t length : tokens) ++seqs_of_length[length];
  const auto plan = plan_packs(seqs_of_length, {});
  const PackPlaces places = place_in_packs(plan, tokens, 24);
  std::vector<uint16_t> tokens_at(tokens.size());
  std::set<uint32_t> different;
  for (size_t seq = 0; seq < tokens.size(); ++seq) {
    tokens_at.at(places.place_of[seq]) = tokens[seq];
    different.insert(places.place_of[seq]);
  }
  ASSERT_EQ(different.size(), tokens.size());
  std::map<std::vector<int64_t>, int64_t> wanted, found;
  for (const PackKind& kind : plan) wanted[kind.lengths] += kind.count;
  size_t place = 0;
  for (const uint8_t seqs : places.pack_seqs) {
    ++found[{tokens_at.begin() + static_cast<int64_t>(place),
             tokens_at.begin() + static_cast<int64_t>(place + seqs)}];
    place += seqs;
  }
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(place_in_packs(plan, tokens, 24).place_of, places.place_of);
  EXPECT_NE(place_in_packs(plan, tokens, 25).place_of, places.place_of);
  // Far from the order of the file: a random order leaves a third of its length between neighbours.
  double distance = 0;
  for (size_t seq = 1; seq < tokens.size(); ++seq) {
    distance += std::abs(double{static_cast<double>(places.place_of[seq])} -
                         static_cast<double>(places.place_of[seq - 1]));
  }
  const auto n = static_cast<double>(tokens.size());
  EXPECT_NEAR(distance / n, n / 3, n / 30);
}

}  // namespace
}  // namespace bertha

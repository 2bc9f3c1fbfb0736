#include "harness/optim/shard_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/harness/optim/optimizer_runs.h"
#include "tests/support/load_settings.h"
#include "tests/support/source_dir.h"

namespace bertha {
namespace {

ParamTable bert_table(DecayRule rule) {
  return make_param_table(make_dims(ModelConfig{.layers = 2,
                                                .hidden = 30,
                                                .heads = 3,
                                                .feed_forward = 61,
                                                .vocab_size = 97,
                                                .max_positions = 19}),
                          rule);
}

// Of the whole buffer, of about a tensor, of less than any matrix.
constexpr int64_t kBuckets[] = {int64_t{1} << 40, 3000, 1000, 1};

/// Runs `check` with every number of ranks and size of buckets, and the plans of all ranks.
template <class Check>
void for_each_world(const ParamTable& table, const Check& check) {
  for (int ranks = 1; ranks <= 7; ++ranks) {
    for (const int64_t bucket : kBuckets) {
      SCOPED_TRACE(concat(ranks, " ranks, buckets of ", bucket));
      std::vector<ShardPlan> plans;
      for (int rank = 0; rank < ranks; ++rank) {
        plans.push_back(
            make_shard_plan(table, {.shard = rank, .shards = ranks, .bucket_elements = bucket}));
      }
      check(ranks, bucket, plans);
    }
  }
}

TEST(ShardPlan, BucketsTileTheBufferInWholeLinesOfEveryRank) {
  const ParamTable table = bert_table(DecayRule::kReference);
  for_each_world(table, [&](int ranks, int64_t most, const std::vector<ShardPlan>& plans) {
    for (const ShardPlan& plan : plans) {
      int64_t expected_begin = 0;
      for (const Bucket& bucket : plan.buckets) {
        EXPECT_EQ(bucket.begin, expected_begin);
        EXPECT_GT(bucket.elements, 0);
        EXPECT_EQ(bucket.elements % (128 * ranks), 0);
        EXPECT_LE(bucket.elements, std::max<int64_t>(most, 128 * ranks));
        expected_begin += bucket.elements;
      }
      EXPECT_EQ(expected_begin, plan.flat_elements);
      EXPECT_EQ(plan.shard_elements * ranks, plan.flat_elements);
      EXPECT_GE(plan.flat_elements, table.elements);
      EXPECT_LT(plan.flat_elements - table.elements, 128 * ranks);
    }
  });
}

TEST(ShardPlan, RangesAreTheSlicesOfAllBucketsOneAfterTheOther) {
  const ParamTable table = bert_table(DecayRule::kReference);
  for_each_world(table, [&](int ranks, int64_t, const std::vector<ShardPlan>& plans) {
    std::vector<int> owner(static_cast<size_t>(plans[0].flat_elements), -1);
    for (int rank = 0; rank < ranks; ++rank) {
      const ShardPlan& plan = plans[static_cast<size_t>(rank)];
      int64_t expected_begin = 0;
      for (const ShardRange& range : plan.ranges) {
        EXPECT_EQ(range.shard_begin, expected_begin);
        expected_begin += range.elements;
        std::fill_n(owner.begin() + range.flat_begin, range.elements, rank);
      }
      EXPECT_EQ(expected_begin, plan.shard_elements);
    }
    for (const Bucket& bucket : plans[0].buckets) {
      for (int64_t i = 0; i < bucket.elements; ++i) {
        ASSERT_EQ(owner[static_cast<size_t>(bucket.begin + i)], i * ranks / bucket.elements);
      }
    }
  });
}

TEST(ShardPlan, AloneARankHasTheFlatBufferInOneRangeWhateverTheBuckets) {
  const ParamTable table = bert_table(DecayRule::kReference);
  int64_t norm_rows = 0;
  for (const ParamInfo& param : table.params) norm_rows += param.norm_parts;
  for (const int64_t bucket : kBuckets) {
    const ShardPlan plan = make_shard_plan(table, {.bucket_elements = bucket});
    ASSERT_EQ(plan.ranges.size(), 1u);
    EXPECT_EQ(plan.ranges[0].flat_begin, 0);
    EXPECT_EQ(std::ssize(plan.segments), norm_rows) << "no tensor is cut but at its norm parts";
  }
}

TEST(ShardPlan, EveryElementOfEveryTensorIsInExactlyOneSegmentOfItsNormRow) {
  const ParamTable table = bert_table(DecayRule::kNvidiaFmha);
  for_each_world(table, [&](int, int64_t, const std::vector<ShardPlan>& plans) {
    std::vector<int64_t> row_of(static_cast<size_t>(plans[0].flat_elements), -1);
    for (const ShardPlan& plan : plans) {
      int64_t free_from = 0;
      for (const LambSegment& segment : plan.segments) {
        ASSERT_LT(segment.tensor, plan.norm_rows);
        ASSERT_GE(segment.begin, free_from);
        free_from = segment.end;
        const auto holds = [&](const ShardRange& range) {
          return range.shard_begin <= segment.begin &&
                 segment.end <= range.shard_begin + range.elements;
        };
        const auto range = std::find_if(plan.ranges.begin(), plan.ranges.end(), holds);
        ASSERT_NE(range, plan.ranges.end());
        for (int64_t i = segment.begin; i < segment.end; ++i) {
          int64_t& row = row_of[static_cast<size_t>(range->flat_begin + i - range->shard_begin)];
          ASSERT_EQ(row, -1);
          row = segment.tensor;
        }
      }
    }
    int64_t first_row = 0;
    int64_t covered = 0;
    for (const ParamInfo& param : table.params) {
      for (int64_t i = 0; i < param.elements; ++i) {
        ASSERT_EQ(row_of[static_cast<size_t>(param.offset + i)],
                  first_row + i * param.norm_parts / param.elements)
            << param.name << " element " << i;
      }
      first_row += param.norm_parts;
      covered += param.elements;
    }
    EXPECT_EQ(std::count_if(row_of.begin(), row_of.end(), [](int64_t row) { return row >= 0; }),
              covered);
  });
}

TEST(ShardPlan, BertLargeHasSixBucketsThatBackwardPassesAndOneForTheEmbeddings) {
  const std::string large = std::string(kSourceDir) + "/configs/models/large.yaml";
  const ParamTable table =
      make_param_table(make_dims(test::load_settings({large}).config.model), DecayRule::kReference);
  const int64_t bucket = bucket_elements(100, DType::kBF16);
  EXPECT_EQ(bucket, 50 << 20);
  const ShardPlan plan = make_shard_plan(table, {.shards = 8, .bucket_elements = bucket});
  ASSERT_EQ(plan.buckets.size(), 7u);
  const ParamInfo& first = table.find("layer.0.attention.qkv.weight");
  EXPECT_GE(plan.buckets[1].begin, first.offset) << "final when the first layer is";
  EXPECT_LT(plan.buckets[1].begin, first.offset + 128 * 8);
  for (size_t i = 2; i < plan.buckets.size(); ++i) EXPECT_EQ(plan.buckets[i].elements, 50 << 20);
  EXPECT_LT(plan.buckets[1].elements, 50 << 20);
}

TEST(ShardPlan, SegmentsCarryTheDecayOfTheirTensor) {
  const ParamTable table =
      testing::table_of({{.name = "a", .shape = {5}}, {.name = "b", .shape = {3}, .decay = false}});
  const ShardPlan plan = make_shard_plan(table, {});
  ASSERT_EQ(plan.segments.size(), 2u);
  EXPECT_TRUE(plan.segments[0].decay);
  EXPECT_FALSE(plan.segments[1].decay);
  EXPECT_EQ(plan.segments[1].begin, 64);
  EXPECT_EQ(plan.segments[1].end, 67);
}

TEST(ShardPlan, MoreRanksThanLinesLeaveTheLastShardsEmpty) {
  const ParamTable table = testing::table_of({{.name = "a", .shape = {129}}});
  EXPECT_EQ(make_shard_plan(table, {.shard = 1, .shards = 4}).segments.size(), 1u);
  EXPECT_TRUE(make_shard_plan(table, {.shard = 3, .shards = 4}).segments.empty());
}

}  // namespace
}  // namespace bertha

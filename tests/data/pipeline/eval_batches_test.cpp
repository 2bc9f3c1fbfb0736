#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "data/files/hashing.h"
#include "data/format/shard_names.h"
#include "data/pipeline/pipeline.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

class EvalBatches : public ::testing::Test {
 protected:
  EvalBatches() {
    int s = 0;
    for (const int64_t seqs : {11, 0, 5, 17}) {
      write_shard(folder_.path(concat("part_", s, ".hdf5")), ShardLayout::kVariableLength,
                  example_samples(seqs, 50 + static_cast<uint64_t>(s)));
      ++s;
    }
    options_.shards = list_shards(folder_.path());
    options_.batch_seqs = 4;
  }

  std::vector<int64_t> ids_of_rank(int rank, int num_ranks) const {
    std::vector<int64_t> ids;
    for (const HostBatch& batch :
         load_eval_batches(options_, rank, num_ranks, plain_host_allocator())) {
      EXPECT_GE(batch.num_seqs, 1);
      EXPECT_LE(batch.num_seqs, options_.batch_seqs);
      std::vector<int64_t> batch_ids = batch.sample_ids;
      std::ranges::sort(batch_ids);
      ids.insert(ids.end(), batch_ids.begin(), batch_ids.end());
    }
    return ids;
  }

  TempFolder folder_;
  EvalOptions options_;
};

TEST_F(EvalBatches, ShardThatIsNotAsItWasMadeIsRefused) {
  for (const std::string& shard : options_.shards) {
    options_.shard_xxh3.push_back(xxh3_of_file(shard));
  }
  EXPECT_EQ(ids_of_rank(0, 1).size(), 33u);
  // Sound samples, as many as before, but others.
  write_shard(options_.shards[2], ShardLayout::kVariableLength, example_samples(5, 99));
  const std::string message = error_of([&] { ids_of_rank(0, 1); });
  EXPECT_THAT(message, HasSubstr(options_.shards[2]));
  EXPECT_THAT(message, HasSubstr(options_.shard_xxh3[2]));
  options_.shard_xxh3[2].clear();  // not known: not compared
  EXPECT_EQ(ids_of_rank(0, 1).size(), 33u);
}

TEST_F(EvalBatches, RanksTakeContiguousPartsAndTheFirstOnesTheRemainder) {
  for (const int64_t max_samples : {0, 1, 10, 33, 50}) {
    options_.max_samples = max_samples;
    const int64_t total = max_samples == 0 ? 33 : std::min<int64_t>(33, max_samples);
    for (const int num_ranks : {1, 2, 4, 7}) {
      std::vector<int64_t> all;
      for (int rank = 0; rank < num_ranks; ++rank) {
        const std::vector<int64_t> ids = ids_of_rank(rank, num_ranks);
        EXPECT_EQ(static_cast<int64_t>(ids.size()),
                  total / num_ranks + (rank < total % num_ranks ? 1 : 0));
        all.insert(all.end(), ids.begin(), ids.end());
      }
      std::vector<int64_t> want(static_cast<size_t>(total));
      std::iota(want.begin(), want.end(), 0);
      EXPECT_EQ(all, want);
    }
  }
}

TEST_F(EvalBatches, RankReadsOnlyTheShardsOfItsPart) {
  // Rows stay countable, but the tokens are beyond the vocabulary of the reader.
  options_.limits.vocab_size = 2000;
  EXPECT_THAT(error_of([&] { ids_of_rank(1, 2); }), HasSubstr("part_"));
  SampleLimits narrow{.max_seq_tokens = 512, .max_masked_per_seq = 76, .vocab_size = 2000};
  write_shard(folder_.path("part_3.hdf5"), ShardLayout::kVariableLength,
              example_samples(17, 1, narrow), narrow);
  EXPECT_EQ(ids_of_rank(1, 2).size(), 16u);  // samples 17 .. 32 are in the last shard
  EXPECT_THAT(error_of([&] { ids_of_rank(0, 2); }), HasSubstr("part_0"));
}

}  // namespace
}  // namespace bertha

#include "data/pipeline/bench_loader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <vector>

#include "data/format/shard_reader.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"
#include "tests/support/thread_world.h"

namespace bertha {
namespace {

LoaderBenchOptions small_bench(const std::string& folder) {
  return {.pipeline = {.shards = {},
                       .global_batch_seqs = 33,
                       .seed = 1,
                       .window_shards = 2,
                       .num_steps = {}},
          .scratch_folder = folder,
          .synthetic_shards = 4,
          .synthetic_shard_seqs = 300,
          .warm_up_s = 0.02,
          .timed_s = 0.1};
}

TEST(BenchLoader, RanksAgreeOnFiguresThatFitTogether) {
  const TempFolder folder;
  std::vector<LoaderBenchResult> results(2);
  run_thread_ranks(2, [&](Transport& transport) {
    results[static_cast<size_t>(transport.rank())] =
        bench_loader(small_bench(folder.path()), transport);
  });
  const LoaderBenchResult& result = results[0];
  EXPECT_EQ(results[1].seqs_per_s_global, result.seqs_per_s_global);
  EXPECT_EQ(results[1].mean_wait_ms, result.mean_wait_ms);
  EXPECT_GT(result.steps, 0);
  EXPECT_NEAR(result.seqs_per_s_global * result.elapsed_s, 33.0 * static_cast<double>(result.steps),
              1e-6 * 33.0 * static_cast<double>(result.steps));
  EXPECT_NEAR(result.tokens_per_s_global / result.seqs_per_s_global, result.mean_tokens_per_seq,
              1e-6 * result.mean_tokens_per_seq);
  EXPECT_GE(result.most_over_mean_tokens, 1.0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "scratch files are left";
}

TEST(SyntheticShard, HasTheLengthsOfWikipediaSequences) {
  const TempFolder folder;
  write_synthetic_shard(folder.path("part_0.hdf5"), 4000, 7, {});
  const SampleSet samples = read_shard(folder.path("part_0.hdf5"), 0, {});
  ASSERT_EQ(samples.size(), 4000);
  int64_t longest = 0;
  int64_t at_most_128 = 0;
  for (int64_t i = 0; i < samples.size(); ++i) {
    if (samples[i].token_ids.size() == 512) ++longest;
    if (samples[i].token_ids.size() <= 128) ++at_most_128;
  }
  // In the histogram the mean is 255.8, 23.4 % are longest and 36.9 % have at most 128 tokens.
  // Five standard deviations: one length 180, one share 0.5, over sqrt(4000).
  const double sigmas = 5.0 / std::sqrt(4000.0);
  EXPECT_NEAR(static_cast<double>(samples.token_offsets.back()) / 4000, 255.8, sigmas * 180);
  EXPECT_NEAR(static_cast<double>(longest) / 4000, 0.234, sigmas * 0.5);
  EXPECT_NEAR(static_cast<double>(at_most_128) / 4000, 0.369, sigmas * 0.5);
}

TEST(SyntheticShard, FitsAnyLimits) {
  const TempFolder folder;
  for (const int64_t longest : {8, 33, 128}) {
    const SampleLimits limits{
        .max_seq_tokens = longest, .max_masked_per_seq = 3, .vocab_size = 200};
    const std::string path = folder.path(concat("part_", longest, ".hdf5"));
    write_synthetic_shard(path, 100, 7, limits);
    EXPECT_EQ(read_shard(path, 0, limits).size(), 100);
  }
}

TEST(BenchLoader, FolderThatDoesNotExistIsADataErrorOnAllRanks) {
  run_thread_ranks(2, [&](Transport& transport) {
    EXPECT_THAT(error_of([&] { bench_loader(small_bench("/nonexistent/scratch"), transport); }),
                HasSubstr("/nonexistent/scratch"));
  });
}

}  // namespace
}  // namespace bertha

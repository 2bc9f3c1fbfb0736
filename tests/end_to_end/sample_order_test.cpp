#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "data/pipeline/pipeline.h"
#include "tests/data/example_data.h"
#include "tests/support/thread_world.h"

namespace bertha {
namespace {

constexpr SampleLimits kLimits{.max_seq_tokens = 32, .max_masked_per_seq = 5, .vocab_size = 320};
constexpr int64_t kSteps = 15;  // of 12 sequences out of 61: almost three epochs

/// [step] the samples of the global batch, whoever trains on them.
using StepIds = std::vector<std::vector<int64_t>>;

class SampleOrderOverResume : public ::testing::Test {
 protected:
  SampleOrderOverResume() {
    for (const int64_t seqs : {17, 5, 22, 17}) {
      options_.shards.push_back(folder_.path(concat("part_", options_.shards.size(), ".hdf5")));
      write_shard(options_.shards.back(), ShardLayout::kVariableLength,
                  example_samples(seqs, 300 + options_.shards.size(), kLimits), kLimits);
    }
    options_.limits = kLimits;
    options_.global_batch_seqs = 12;
    options_.window_shards = 2;
    options_.seed = 3;
  }

  /// Steps [first, last) of a run over this many ranks.
  StepIds run(int num_ranks, int64_t first, int64_t last) const {
    PipelineOptions options = options_;
    options.first_step = first;
    options.num_steps = last - first;
    StepIds ids(static_cast<size_t>(last - first));
    std::mutex mutex;
    run_thread_ranks(num_ranks, [&](Transport& transport) {
      const auto pipeline =
          make_training_pipeline(options, borrowed(transport), plain_host_allocator());
      while (const auto batch = pipeline->next()) {
        const std::lock_guard<std::mutex> lock(mutex);
        auto& step = ids.at(static_cast<size_t>(batch->step - first));
        for (const HostBatch& micro : batch->micro_batches) {
          step.insert(step.end(), micro.sample_ids.begin(), micro.sample_ids.end());
        }
      }
    });
    for (auto& step : ids) std::sort(step.begin(), step.end());
    return ids;
  }

  TempFolder folder_;
  PipelineOptions options_;
};

TEST_F(SampleOrderOverResume, EveryStepHasTheSamplesOfTheUninterruptedRunAtAnyNumberOfRanks) {
  for (const auto exchange :
       {ExchangePadding::kOff, ExchangePadding::kAllGather, ExchangePadding::kLengths}) {
    options_.exchange = exchange;
    const StepIds whole = run(2, 0, kSteps);
    for (const auto& step : whole) ASSERT_EQ(step.size(), 12u);
    for (const auto& [before, after] : {std::pair{2, 1}, {1, 3}, {3, 2}, {4, 4}}) {
      for (const int64_t stop : {1, 5, 6, 14}) {
        StepIds parts = run(before, 0, stop);
        const StepIds tail = run(after, stop, kSteps);
        parts.insert(parts.end(), tail.begin(), tail.end());
        EXPECT_EQ(parts, whole) << before << " ranks to step " << stop << ", then " << after;
      }
    }
  }
}

TEST_F(SampleOrderOverResume, AnotherSeedHasAnotherOrder) {
  const StepIds whole = run(1, 0, kSteps);
  options_.seed = 4;
  EXPECT_NE(run(1, 0, kSteps), whole);
}

}  // namespace
}  // namespace bertha

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "data/format/shard_names.h"
#include "data/pipeline/pipeline.h"
#include "kernels/base/tests/error_of.h"
#include "tests/data/example_data.h"
#include "tests/support/thread_world.h"

namespace bertha {

inline constexpr SampleLimits kLimits{
    .max_seq_tokens = 64, .max_masked_per_seq = 10, .vocab_size = 500};
inline constexpr ExchangePadding kModes[] = {ExchangePadding::kOff, ExchangePadding::kAllGather,
                                             ExchangePadding::kLengths};

/// Shards of unequal size, one of them empty: 79 samples.
class PipelineTest : public testing::Test {
 protected:
  PipelineTest() {
    for (const int64_t seqs : {13, 1, 20, 0, 17, 21, 7}) {
      const auto s = static_cast<int64_t>(options_.shards.size());
      options_.shards.push_back(folder_.path(concat("part_", s, ".hdf5")));
      write_shard(options_.shards.back(), ShardLayout::kVariableLength,
                  example_samples(seqs, 100 + static_cast<uint64_t>(s), kLimits), kLimits);
    }
    options_.limits = kLimits;
    options_.global_batch_seqs = 10;
    options_.seed = 7;
    options_.window_shards = 3;
    options_.group_bucket_tokens = 16;
  }

  static constexpr int64_t kEpochSeqs = 79;
  TempFolder folder_;
  PipelineOptions options_;
};

/// [rank][step]
using RanksSteps = std::vector<std::vector<StepBatch>>;

inline RanksSteps run_pipelines(const PipelineOptions& options, int num_ranks) {
  RanksSteps all(static_cast<size_t>(num_ranks));
  run_thread_ranks(num_ranks, [&](Transport& transport) {
    const auto pipeline =
        make_training_pipeline(options, borrowed(transport), plain_host_allocator());
    while (auto batch = pipeline->next()) {
      all[static_cast<size_t>(transport.rank())].push_back(std::move(*batch));
    }
  });
  return all;
}

inline std::vector<int64_t> sorted_ids(const RanksSteps& ranks, size_t step) {
  std::vector<int64_t> ids;
  for (const auto& steps : ranks) {
    for (const HostBatch& batch : steps[step].micro_batches) {
      ids.insert(ids.end(), batch.sample_ids.begin(), batch.sample_ids.end());
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// Everything a batch says, as text, for comparing.
inline std::string text_of(const StepBatch& step) {
  std::string text = concat("step ", step.step, " epoch ", step.epoch, " global ",
                            step.num_seqs_global, ' ', step.num_tokens_global, ' ',
                            step.num_masked_global, ' ', step.most_tokens_per_rank, '\n');
  for (const HostBatch& batch : step.micro_batches) {
    for (const auto& array : {batch.word_ids, batch.segment_ids, batch.position_ids,
                              batch.rows_by_word, batch.cu_seqlens, batch.masked_positions,
                              batch.masked_labels, batch.next_sentence_labels}) {
      for (const int32_t value : array) text += concat(value, ' ');
      text += '\n';
    }
    for (const int64_t id : batch.sample_ids) text += concat(id, ' ');
    for (const SequenceGroup& group : batch.groups) {
      text += concat('[', group.first_seq, ' ', group.num_seqs, ' ', group.bucket_tokens, ']');
    }
    text += "\n--\n";
  }
  return text;
}

/// As many steps of every rank are those of `want` from `first` on.
void expect_same_steps(const RanksSteps& found, const RanksSteps& want, int64_t num_steps,
                       int64_t first = 0) {
  ASSERT_EQ(found.size(), want.size());
  for (size_t rank = 0; rank < found.size(); ++rank) {
    ASSERT_EQ(std::ssize(found[rank]), num_steps);
    for (size_t step = 0; step < found[rank].size(); ++step) {
      ASSERT_EQ(text_of(found[rank][step]), text_of(want[rank][step + static_cast<size_t>(first)]));
    }
  }
}

inline int64_t tokens_of(const StepBatch& step) {
  int64_t tokens = 0;
  for (const HostBatch& batch : step.micro_batches) tokens += batch.num_tokens;
  return tokens;
}

// As on nodes whose copies of a data set differ.

/// What next() throws on each rank, and after how many batches.
struct Ending {
  int64_t batches = 0;
  std::string message;
};

inline std::vector<Ending> run_to_the_error(const PipelineOptions& options, int num_ranks,
                                            const std::function<HostAllocator(int)>& allocator) {
  std::vector<Ending> endings(static_cast<size_t>(num_ranks));
  run_thread_ranks(num_ranks, [&](Transport& transport) {
    Ending& ending = endings[static_cast<size_t>(transport.rank())];
    const auto pipeline =
        make_training_pipeline(options, borrowed(transport), allocator(transport.rank()));
    ending.message = error_of([&] {
      while (pipeline->next()) ++ending.batches;
    });
    // Once failed, always failed.
    EXPECT_EQ(error_of([&] { pipeline->next(); }), ending.message);
  });
  return endings;
}

}  // namespace bertha

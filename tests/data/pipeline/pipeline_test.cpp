#include "data/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "data/files/hashing.h"
#include "data/format/shard_names.h"
#include "data/format/shard_reader.h"
#include "kernels/base/seconds_since.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"
#include "tests/data/pipeline/pipeline_fixture.h"
#include "tests/support/thread_world.h"

namespace bertha {
namespace {

TEST_F(PipelineTest, RanksThatSeeOtherShardsFailAlike) {
  const auto refusals = [&](const std::vector<std::string>& of_rank_1) {
    std::vector<std::string> texts(2);
    run_thread_ranks(2, [&](Transport& transport) {
      PipelineOptions options = options_;
      if (transport.rank() == 1) options.shards = of_rank_1;
      texts[static_cast<size_t>(transport.rank())] = error_of(
          [&] { make_training_pipeline(options, borrowed(transport), plain_host_allocator()); });
    });
    EXPECT_EQ(texts[0], texts[1]);
    return texts[0];
  };
  std::vector<std::string> shards = options_.shards;
  shards.pop_back();
  EXPECT_THAT(refusals(shards), HasSubstr("rank 1 sees 6 shards, but rank 0 7"));
  shards.push_back(folder_.path("part_8.hdf5"));
  EXPECT_THAT(refusals(shards), HasSubstr("want the same names on all"));
  shards.push_back(folder_.path("part_9.hdf5"));
  std::filesystem::copy_file(options_.shards[0], shards[6]);
  std::filesystem::copy_file(options_.shards[1], shards[7]);
  EXPECT_THAT(refusals(shards), HasSubstr("rank 1 sees 8 shards, but rank 0 7"));
}

TEST_F(PipelineTest, StepsHoldTheSameSamplesForEveryWorldSizeAndExchangeMode) {
  options_.num_steps = 20;  // two and a half epochs
  const RanksSteps alone = run_pipelines(options_, 1);
  ASSERT_EQ(alone[0].size(), 20u);
  std::map<int64_t, int> seen;
  for (size_t step = 0; step < 20; ++step) {
    ASSERT_EQ(sorted_ids(alone, step).size(), 10u);
    for (const int64_t id : sorted_ids(alone, step)) ++seen[id];
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), kEpochSeqs);
  for (const auto& [id, times] : seen) EXPECT_TRUE(times == 2 || times == 3) << id;
  for (const auto mode : kModes) {
    options_.exchange = mode;
    for (const int num_ranks : {1, 2, 3, 4}) {
      options_.micro_batches_per_step = 1 + num_ranks % 3;
      const RanksSteps ranks = run_pipelines(options_, num_ranks);
      for (size_t step = 0; step < 20; ++step) {
        ASSERT_EQ(sorted_ids(ranks, step), sorted_ids(alone, step)) << step << " of " << num_ranks;
      }
    }
  }
}

TEST_F(PipelineTest, AllGatherAndLengthsGiveIdenticalBatches) {
  options_.num_steps = 9;
  options_.micro_batches_per_step = 2;
  for (const auto order : {SampleOrder::kWindowed, SampleOrder::kPublished}) {
    options_.order = order;
    for (const int num_ranks : {1, 2, 3, 4}) {
      options_.exchange = ExchangePadding::kAllGather;
      const RanksSteps gathered = run_pipelines(options_, num_ranks);
      options_.exchange = ExchangePadding::kLengths;
      const RanksSteps moved = run_pipelines(options_, num_ranks);
      expect_same_steps(gathered, moved, 9);
    }
  }
}

TEST_F(PipelineTest, BatchesHoldTheSamplesOfTheShards) {
  std::map<int64_t, std::vector<int32_t>> tokens_of_id;
  int64_t first_id = 0;
  for (const std::string& path : options_.shards) {
    const SampleSet shard = read_shard(path, first_id, kLimits);
    for (int64_t i = 0; i < shard.size(); ++i) {
      tokens_of_id[first_id + i] = {shard[i].token_ids.begin(), shard[i].token_ids.end()};
    }
    first_id += shard.size();
  }
  options_.num_steps = 8;
  for (const auto& steps : run_pipelines(options_, 3)) {
    for (const StepBatch& step : steps) {
      for (const HostBatch& batch : step.micro_batches) {
        for (size_t seq = 0; seq < batch.sample_ids.size(); ++seq) {
          const auto begin = batch.word_ids.begin() + batch.cu_seqlens[seq];
          const auto end = batch.word_ids.begin() + batch.cu_seqlens[seq + 1];
          ASSERT_EQ(std::vector<int32_t>(begin, end), tokens_of_id.at(batch.sample_ids[seq]));
        }
      }
    }
  }
}

TEST_F(PipelineTest, PackedShardsGiveTheBatchesOfTheSameSequencesUnpacked) {
  // The published packer's names end in nothing.
  std::filesystem::create_directory(folder_.path("packed"));
  for (size_t s = 0; s < options_.shards.size(); ++s) {
    write_shard(folder_.path(concat("packed/part_0000", s)), ShardLayout::kPacked,
                read_shard(options_.shards[s], 0, kLimits), kLimits);
  }
  PipelineOptions packed = options_;
  packed.shards = list_shards(folder_.path("packed"));
  ASSERT_EQ(packed.shards.size(), options_.shards.size());
  const ShardInfo info = inspect_shard(packed.shards[2]);
  ASSERT_EQ(info.num_samples, 20);
  ASSERT_LT(info.num_rows, 20);
  options_.num_steps = packed.num_steps = 9;
  for (const auto order : {SampleOrder::kWindowed, SampleOrder::kPublished}) {
    options_.order = packed.order = order;
    for (const auto mode : {ExchangePadding::kOff, ExchangePadding::kLengths}) {
      options_.exchange = packed.exchange = mode;
      for (const int num_ranks : {1, 3}) {
        const RanksSteps want = run_pipelines(options_, num_ranks);
        const RanksSteps found = run_pipelines(packed, num_ranks);
        expect_same_steps(found, want, 9);
      }
    }
  }
}

TEST_F(PipelineTest, RanksDifferByAtMostOneSequenceAndKnowTheCountsOfTheStep) {
  options_.global_batch_seqs = 31;
  options_.num_steps = 6;
  for (const auto mode : kModes) {
    options_.exchange = mode;
    const RanksSteps ranks = run_pipelines(options_, 4);
    for (size_t s = 0; s < 6; ++s) {
      int64_t seqs = 0, masked = 0;
      std::vector<int64_t> tokens;
      for (const auto& steps : ranks) {
        tokens.push_back(tokens_of(steps[s]));
        for (const HostBatch& batch : steps[s].micro_batches) {
          seqs += batch.num_seqs;
          masked += batch.num_masked;
        }
      }
      const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
      if (mode != ExchangePadding::kOff) {
        EXPECT_LE(*most - *least, kLimits.max_seq_tokens);
      }
      for (const auto& steps : ranks) {
        EXPECT_EQ(steps[s].num_seqs_global, 31);
        EXPECT_EQ(steps[s].num_seqs_global, seqs);
        EXPECT_EQ(steps[s].num_masked_global, masked);
        EXPECT_EQ(steps[s].num_tokens_global,
                  std::accumulate(tokens.begin(), tokens.end(), int64_t{0}));
        EXPECT_EQ(steps[s].most_tokens_per_rank, *most);
      }
    }
  }
}

TEST_F(PipelineTest, ResumingAtAnyStepGivesTheTailOfTheWholeRun) {
  for (const auto order : {SampleOrder::kWindowed, SampleOrder::kPublished}) {
    options_.order = order;
    for (const auto& [mode, num_ranks] : {std::pair(ExchangePadding::kLengths, 2),
                                          {ExchangePadding::kOff, 3},
                                          {ExchangePadding::kAllGather, 4},
                                          {ExchangePadding::kLengths, 1}}) {
      options_.exchange = mode;
      options_.first_step = 0;
      options_.num_steps = 18;
      const RanksSteps whole = run_pipelines(options_, num_ranks);
      for (const int64_t first_step : {1, 7, 8, 17}) {
        options_.first_step = first_step;
        options_.num_steps = 18 - first_step;
        const RanksSteps tail = run_pipelines(options_, num_ranks);
        expect_same_steps(tail, whole, 18 - first_step, first_step);
      }
    }
  }
}

TEST_F(PipelineTest, ResumeSkipsShardsWithoutReadingThem) {
  options_.window_shards = 1;
  options_.num_steps = 1;
  // The step after the samples of all shards but the last of the epoch needs no other shard.
  const RanksSteps last = [&] {
    options_.first_step = 7;  // positions 70 .. 79, and the epoch has 79 samples
    return run_pipelines(options_, 1);
  }();
  std::set<size_t> needed;
  const std::vector<int64_t> first_ids{0, 13, 14, 34, 34, 51, 72, 79};
  for (const int64_t id : sorted_ids(last, 0)) {
    for (size_t s = 0; s + 1 < first_ids.size(); ++s) {
      if (id >= first_ids[s] && id < first_ids[s + 1]) needed.insert(s);
    }
  }
  // Damage a shard that is not needed: its rows still count, but its tokens are out of range.
  size_t damaged = 0;
  while (needed.contains(damaged) || damaged == 3) ++damaged;
  SampleLimits wide = kLimits;
  wide.vocab_size = 30000;
  write_shard(options_.shards[damaged], ShardLayout::kVariableLength,
              example_samples(first_ids[damaged + 1] - first_ids[damaged], 1, wide), wide);
  EXPECT_EQ(text_of(run_pipelines(options_, 1)[0][0]), text_of(last[0][0]));
  options_.first_step = 0;
  options_.num_steps = 8;
  EXPECT_THROW(run_pipelines(options_, 1), Error);
}

TEST_F(PipelineTest, FewerSequencesThanRanksLeavesEmptyBatches) {
  options_.global_batch_seqs = 2;
  options_.micro_batches_per_step = 2;
  options_.num_steps = 3;
  for (const auto mode : {ExchangePadding::kOff, ExchangePadding::kLengths}) {
    options_.exchange = mode;
    const RanksSteps ranks = run_pipelines(options_, 4);
    for (size_t step = 0; step < 3; ++step) {
      EXPECT_EQ(sorted_ids(ranks, step).size(), 2u);
      for (const auto& steps : ranks) {
        ASSERT_EQ(steps[step].micro_batches.size(), 2u);
        for (const HostBatch& batch : steps[step].micro_batches) {
          EXPECT_EQ(batch.cu_seqlens.size(), static_cast<size_t>(batch.num_seqs) + 1);
        }
      }
    }
  }
}

TEST_F(PipelineTest, CorruptShardIsNamedByAllRanksInTheSameStep) {
  SampleLimits wide = kLimits;
  wide.vocab_size = 30000;
  write_shard(options_.shards[2], ShardLayout::kVariableLength, example_samples(20, 1, wide), wide);
  options_.window_shards = 1;
  for (const auto mode : kModes) {
    options_.exchange = mode;
    const auto plain = [](int) { return plain_host_allocator(); };
    const std::vector<Ending> endings = run_to_the_error(options_, 3, plain);
    for (const Ending& ending : endings) {
      EXPECT_THAT(ending.message, HasSubstr(options_.shards[2]));
      EXPECT_EQ(ending.message, endings[0].message);
      EXPECT_EQ(ending.batches, endings[0].batches);
      EXPECT_LT(ending.batches, 8);
    }
  }
}

TEST_F(PipelineTest, ShardThatIsNotAsItWasMadeIsNamedByAllRanks) {
  for (const std::string& shard : options_.shards) {
    options_.shard_xxh3.push_back(xxh3_of_file(shard));
  }
  write_shard(options_.shards[4], ShardLayout::kVariableLength, example_samples(17, 1, kLimits),
              kLimits);
  const auto plain = [](int) { return plain_host_allocator(); };
  for (const Ending& ending : run_to_the_error(options_, 3, plain)) {
    EXPECT_THAT(ending.message, HasSubstr(options_.shards[4]));
    EXPECT_THAT(ending.message, HasSubstr(options_.shard_xxh3[4]));
  }
}

TEST_F(PipelineTest, MissingShardEndsTheConstructionOnAllRanks) {
  options_.shards.push_back(folder_.path("part_gone.hdf5"));
  std::mutex mutex;
  std::set<std::string> messages;
  run_thread_ranks(3, [&](Transport& transport) {
    const std::string message = error_of(
        [&] { make_training_pipeline(options_, borrowed(transport), plain_host_allocator()); });
    const std::lock_guard lock(mutex);
    messages.insert(message);
  });
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_THAT(*messages.begin(), HasSubstr("part_gone.hdf5"));
}

TEST_F(PipelineTest, PublishedOrderWithoutASequencePerRankIsAUsageError) {
  options_.order = SampleOrder::kPublished;
  options_.global_batch_seqs = 2;
  EXPECT_THAT(error_of([&] { run_pipelines(options_, 3); }, ExitCode::kUsage),
              HasSubstr("one sequence per rank"));
}

TEST_F(PipelineTest, FailureToCollateOnOneRankReachesAllRanks) {
  const auto failing_on_rank_1 = [](int rank) -> HostAllocator {
    if (rank != 1) return plain_host_allocator();
    return [allocate = plain_host_allocator(), left = 3](int64_t bytes) mutable {
      if (left-- == 0) fail(ExitCode::kData, "no page left");
      return allocate(bytes);
    };
  };
  for (const Ending& ending : run_to_the_error(options_, 3, failing_on_rank_1)) {
    EXPECT_EQ(ending.message, "no page left");
    EXPECT_GE(ending.batches, 3);
  }
}

TEST_F(PipelineTest, DestructionAtAnyMomentIsClean) {
  for (const int64_t batches : {0, 1, 5}) {
    run_thread_ranks(3, [&](Transport& transport) {
      const auto pipeline =
          make_training_pipeline(options_, borrowed(transport), plain_host_allocator());
      for (int64_t i = 0; i < batches; ++i) ASSERT_TRUE(pipeline->next());
      // Ranks close one after the other; the first ones wait inside the destructor.
      std::this_thread::sleep_for(std::chrono::milliseconds(3 * transport.rank()));
    });
  }
}

TEST_F(PipelineTest, RankThatLeavesEarlyEndsTheOthersWithAnError) {
  run_thread_ranks(2, [&](Transport& transport) {
    const auto pipeline =
        make_training_pipeline(options_, borrowed(transport), plain_host_allocator());
    if (transport.rank() == 1) return;
    EXPECT_THAT(error_of(
                    [&] {
                      while (pipeline->next()) {
                      }
                    },
                    ExitCode::kInternal),
                HasSubstr("rank 1"));
  });
}

TEST_F(PipelineTest, UnwindingDestructorDoesNotWaitForPeersThatAreStuck) {
  ThreadWorld world(2);
  std::promise<void> rank_1_is_gone;
  std::thread stuck([&] {
    // Rank 0 stops taking batches, as one does that waits in a collective of the training step,
    // until the job is aborted. Were rank 1 to wait for it, this test would run into its time
    // limit.
    const auto pipeline =
        make_training_pipeline(options_, borrowed(world.transport(0)), plain_host_allocator());
    EXPECT_TRUE(pipeline->next());
    rank_1_is_gone.get_future().wait();
    world.abort();
  });
  try {
    const auto pipeline =
        make_training_pipeline(options_, borrowed(world.transport(1)), plain_host_allocator());
    for (int i = 0; i < 3; ++i) pipeline->next();
    fail(ExitCode::kNumeric, "not a number");
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ExitCode::kNumeric);
  }
  rank_1_is_gone.set_value();
  stuck.join();
}

TEST_F(PipelineTest, SlowConsumerFindsTheSameBatchesReadyWithoutWaiting) {
  options_.num_steps = 6;
  const RanksSteps quick = run_pipelines(options_, 2);
  run_thread_ranks(2, [&](Transport& transport) {
    const auto pipeline =
        make_training_pipeline(options_, borrowed(transport), plain_host_allocator());
    EXPECT_EQ(pipeline->samples_per_epoch(), kEpochSeqs);
    for (size_t step = 0; step < 6; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      const auto asked = std::chrono::steady_clock::now();
      const auto batch = pipeline->next();
      ASSERT_TRUE(batch);
      if (step > 0) {
        EXPECT_LT(seconds_since(asked), 0.040);
      }
      EXPECT_EQ(text_of(*batch), text_of(quick[static_cast<size_t>(transport.rank())][step]));
    }
    EXPECT_FALSE(pipeline->next());
    EXPECT_FALSE(pipeline->next());
  });
}

}  // namespace
}  // namespace bertha

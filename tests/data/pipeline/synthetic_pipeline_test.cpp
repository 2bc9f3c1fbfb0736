#include "data/pipeline/synthetic_steps.h"

#include <gtest/gtest.h>

#include <map>

#include "kernels/base/error.h"
#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

SyntheticSteps small_steps(int num_ranks) {
  return {.lengths = uniform_lengths(40),
          .max_seq_tokens = 40,
          .max_masked_per_seq = 6,
          .vocab_size = 200,
          .global_batch_seqs = 12,
          .seed = 5,
          .num_ranks = num_ranks};
}

TEST(UniformLengths, HaveEachLengthFromEightTokens) {
  const LengthHistogram lengths = uniform_lengths(10);
  EXPECT_THAT(lengths, ElementsAreArray({0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_THAT(uniform_lengths(5), ElementsAreArray({0, 0, 0, 0, 0, 1}));
}

TEST(SyntheticPipeline, DeliversTheStepsFromTheFirstToTheLast) {
  const SyntheticSteps steps = small_steps(3);
  const auto pipeline = make_synthetic_pipeline(steps, {.rank = 2, .first_step = 4, .num_steps = 3},
                                                plain_host_allocator());
  EXPECT_EQ(pipeline->samples_per_epoch(), 7 * 12);
  for (int64_t step = 4; step < 7; ++step) {
    const StepBatch wanted =
        make_synthetic_batch(steps, plan_synthetic_step(steps, step), 2, plain_host_allocator());
    const std::optional<StepBatch> found = pipeline->next();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, step);
    EXPECT_EQ(found->num_tokens_global, wanted.num_tokens_global);
    EXPECT_THAT(found->micro_batches.front().word_ids,
                ElementsAreArray(wanted.micro_batches.front().word_ids));
  }
  EXPECT_FALSE(pipeline->next());
}

TEST(SyntheticPipeline, MayRepeatLengthsWithOtherWords) {
  const auto pipeline = make_synthetic_pipeline(
      small_steps(1), {.num_steps = 4, .distinct_lengths = 2}, plain_host_allocator());
  std::vector<HostBatch> batches;
  for (int64_t step = 0; step < 4; ++step) {
    std::optional<StepBatch> batch = pipeline->next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->step, step);
    batches.push_back(std::move(batch->micro_batches.front()));
  }
  EXPECT_THAT(batches[2].cu_seqlens, ElementsAreArray(batches[0].cu_seqlens));
  EXPECT_THAT(batches[3].cu_seqlens, ElementsAreArray(batches[1].cu_seqlens));
  EXPECT_THAT(batches[1].cu_seqlens, Not(ElementsAreArray(batches[0].cu_seqlens)));
  EXPECT_THAT(batches[2].word_ids, Not(ElementsAreArray(batches[0].word_ids)));
}

TEST(SyntheticPipeline, EndsBeforeItsBatchesAreTaken) {
  const auto pipeline =
      make_synthetic_pipeline(small_steps(1), {.num_steps = 1'000'000}, plain_host_allocator());
  EXPECT_TRUE(pipeline->next());
}

TEST(SyntheticPipeline, RethrowsWhatIsWrongWithTheSteps) {
  SyntheticSteps steps = small_steps(1);
  steps.vocab_size = 100;
  const auto pipeline = make_synthetic_pipeline(steps, {.num_steps = 2}, plain_host_allocator());
  EXPECT_THROW(pipeline->next(), Error);
}

TEST(SyntheticEvalSet, IsTheSameForEveryNumberOfRanks) {
  std::vector<std::map<int64_t, std::vector<int32_t>>> sets;  // word ids of each sequence
  for (const int num_ranks : {1, 2, 5}) {
    auto& set = sets.emplace_back();
    for (int rank = 0; rank < num_ranks; ++rank) {
      SyntheticSteps steps = small_steps(num_ranks);
      steps.global_batch_seqs = 23;
      for (const HostBatch& batch :
           make_synthetic_eval_batches(steps, 4, rank, plain_host_allocator())) {
        EXPECT_GE(batch.num_seqs, 1);
        EXPECT_LE(batch.num_seqs, 4);
        for (int64_t seq = 0; seq < batch.num_seqs; ++seq) {
          const auto at = static_cast<size_t>(seq);
          const auto first = batch.word_ids.begin() + batch.cu_seqlens[at];
          const auto end = batch.word_ids.begin() + batch.cu_seqlens[at + 1];
          EXPECT_TRUE(set.try_emplace(batch.sample_ids[at], first, end).second);
        }
      }
    }
    EXPECT_EQ(set.size(), 23u);
    EXPECT_EQ(set, sets.front());
  }
}

TEST(SyntheticEvalSet, MayBeSmallerThanTheNumberOfRanks) {
  SyntheticSteps steps = small_steps(4);
  steps.global_batch_seqs = 1;
  size_t batches = 0;
  for (int rank = 0; rank < 4; ++rank) {
    batches += make_synthetic_eval_batches(steps, 4, rank, plain_host_allocator()).size();
  }
  EXPECT_EQ(batches, 1u);
}

TEST(RepeatedBatch, IsTheFirstOneInEveryStep) {
  const SyntheticSteps steps = small_steps(1);
  const auto repeated = repeat_first_batch(
      make_synthetic_pipeline(steps, {.num_steps = 1}, plain_host_allocator()), 7, 3);
  const StepBatch wanted =
      make_synthetic_batch(steps, plan_synthetic_step(steps, 0), 0, plain_host_allocator());
  for (int64_t step = 7; step < 10; ++step) {
    const std::optional<StepBatch> found = repeated->next();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, step);
    EXPECT_THAT(found->micro_batches.front().word_ids,
                ElementsAreArray(wanted.micro_batches.front().word_ids));
  }
  EXPECT_FALSE(repeated->next());
}

}  // namespace
}  // namespace bertha

#include "data/pipeline/synthetic_steps.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

std::string histogram_error(const std::string& text) {
  return error_of([&] { parse_length_histogram(text, "lengths.txt"); });
}

TEST(LengthHistogram, IsOneCountPerLengthOrPairs) {
  const LengthHistogram wanted{0, 0, 0, 5, 0, 7};
  EXPECT_EQ(parse_length_histogram("# header\n0\n0\n\n5\n0\n7\n", "f"), wanted);
  EXPECT_EQ(parse_length_histogram("5 7\r\n  # remark\n3 2\n3 3", "f"), wanted);
}

TEST(LengthHistogram, MistakesNameTheLine) {
  EXPECT_THAT(histogram_error("0\n0\n5\nx\n"), HasSubstr("lengths.txt:4: found \"x\""));
  for (const std::string wrong :
       {"0\n0\n5 1\n", "3 5\n7\n", "3 5 1\n", "3 -1\n", "0 4\n", "32768 1\n", "3 4x\n"}) {
    EXPECT_THAT(histogram_error(wrong), HasSubstr("want one count on each line")) << wrong;
  }
  EXPECT_THAT(histogram_error("0\n5\n"), HasSubstr("sequences of length 2"));
  EXPECT_THAT(histogram_error("# nothing\n"), HasSubstr("no count above zero"));
  EXPECT_THAT(histogram_error("5 9223372036854775807\n5 1\n"),
              HasSubstr("lengths.txt:2: the counts of length 5"));
  EXPECT_THAT(histogram_error("5 0\n"), HasSubstr("no count above zero"));
}

SyntheticSteps wikipedia_like() {
  SyntheticSteps steps{.lengths = LengthHistogram(513, 10), .global_batch_seqs = 60, .seed = 3};
  std::fill_n(steps.lengths.begin(), 16, 0);
  steps.lengths[512] = 1500;
  return steps;
}

std::vector<int64_t> lengths_of(const SyntheticPlan& plan) {
  std::vector<int64_t> lengths;
  for (const auto& bin : plan.bins) {
    for (const SyntheticSequence& sequence : bin) lengths.push_back(sequence.tokens);
  }
  return lengths;
}

TEST(SyntheticPlan, WithoutAHistogramEverySequenceIsFull) {
  const SyntheticPlan plan =
      plan_synthetic_step({.max_seq_tokens = 40, .global_batch_seqs = 6, .num_ranks = 2}, 0);
  EXPECT_EQ(lengths_of(plan), std::vector<int64_t>(6, 40));
  EXPECT_EQ(plan.num_seqs_global, 6);
  EXPECT_EQ(plan.num_tokens_global, 240);
  EXPECT_EQ(plan.num_masked_global, 36);
  EXPECT_EQ(plan.most_tokens_per_rank, 120);
}

TEST(SyntheticPlan, LengthsFollowTheHistogram) {
  SyntheticSteps steps{.lengths = {0, 0, 0, 1, 0, 3}, .global_batch_seqs = 20000};
  std::map<int64_t, int64_t> counts;
  for (const int64_t length : lengths_of(plan_synthetic_step(steps, 0))) ++counts[length];
  ASSERT_EQ(counts.size(), 2U);
  EXPECT_NEAR(counts[3], 5000, 5 * 62);  // five deviations of a binomial
  EXPECT_EQ(counts[3] + counts[5], 20000);
  steps.max_seq_tokens = 4;
  for (const int64_t length : lengths_of(plan_synthetic_step(steps, 0))) EXPECT_LE(length, 4);
}

TEST(SyntheticPlan, AssignsEverySequenceOnceAndEvenly) {
  SyntheticSteps steps = wikipedia_like();
  steps.num_ranks = 3;
  steps.micro_batches_per_step = 2;
  const SyntheticPlan plan = plan_synthetic_step(steps, 1);
  ASSERT_EQ(plan.bins.size(), 6U);
  std::set<int64_t> slots;
  std::vector<int64_t> tokens;
  for (const auto& bin : plan.bins) {
    tokens.push_back(0);
    for (const SyntheticSequence& sequence : bin) {
      slots.insert(sequence.slot);
      tokens.back() += sequence.tokens;
    }
  }
  EXPECT_EQ(slots.size(), 60U);
  EXPECT_EQ(plan.num_seqs_global, 60);
  EXPECT_LE(std::ranges::max(tokens) - std::ranges::min(tokens), 512);
  EXPECT_EQ(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}), plan.num_tokens_global);
  EXPECT_NE(lengths_of(plan), lengths_of(plan_synthetic_step(steps, 2)));
  steps.exchange = ExchangePadding::kOff;
  EXPECT_EQ(plan_synthetic_step(steps, 1).bins[1].front().slot, 20);  // rank 1 has 20 .. 39
}

TEST(SyntheticPlan, AGivenNumberOfTokensIsNearlyReachedAndNeverPassed) {
  for (const int ranks : {1, 3}) {
    SyntheticSteps steps = wikipedia_like();
    steps.num_ranks = ranks;
    steps.micro_batches_per_step = 2;
    for (const int64_t wanted : {512, 1000, 4096}) {
      steps.tokens_per_micro_batch = wanted;
      for (int64_t step = 0; step < 5; ++step) {
        const SyntheticPlan plan = plan_synthetic_step(steps, step);
        EXPECT_EQ(std::ssize(plan.bins), 2 * ranks);
        for (const auto& bin : plan.bins) {
          int64_t tokens = 0;
          for (const SyntheticSequence& sequence : bin) {
            EXPECT_GE(sequence.tokens, 3);
            tokens += sequence.tokens;
          }
          EXPECT_LE(tokens, wanted);
          EXPECT_GE(tokens, wanted - 2);
        }
        EXPECT_LE(plan.most_tokens_per_rank, 2 * wanted);
      }
    }
  }
}

TEST(SyntheticPlan, SeedsOneApartShareNoSteps) {
  SyntheticSteps steps = wikipedia_like();
  const std::vector<int64_t> lengths = lengths_of(plan_synthetic_step(steps, 1));
  ++steps.seed;
  for (int64_t step = 0; step < 3; ++step) {
    EXPECT_NE(lengths_of(plan_synthetic_step(steps, step)), lengths);
  }
}

TEST(SyntheticPlan, WhatCannotBeMadeIsRefused) {
  SyntheticSteps steps{.global_batch_seqs = 1, .tokens_per_micro_batch = 511};
  EXPECT_THROW(plan_synthetic_step(steps, 0), Error);
  steps.tokens_per_micro_batch = 512;
  EXPECT_NO_THROW(plan_synthetic_step(steps, 0));
  steps.vocab_size = 104;
  EXPECT_THROW(plan_synthetic_step(steps, 0), Error);
}

class SyntheticBatchTest : public ::testing::Test {
 protected:
  SyntheticBatchTest() { steps_.num_ranks = 2; }
  StepBatch of_rank(int rank) {
    return make_synthetic_batch(steps_, plan_, rank, plain_host_allocator());
  }

  SyntheticSteps steps_ = wikipedia_like();
  SyntheticPlan plan_ = plan_synthetic_step(
      [] {
        SyntheticSteps steps = wikipedia_like();
        steps.num_ranks = 2;
        return steps;
      }(),
      4);
};

TEST_F(SyntheticBatchTest, IsCollatedAsTrainingsAre) {
  std::set<int64_t> slots;
  int64_t tokens = 0;
  int64_t masked = 0;
  for (const int rank : {0, 1}) {
    const StepBatch batch = of_rank(rank);
    ASSERT_EQ(batch.micro_batches.size(), 1U);
    const HostBatch& micro = batch.micro_batches.front();
    tokens += micro.num_tokens;
    masked += micro.num_masked;
    slots.insert(micro.sample_ids.begin(), micro.sample_ids.end());
    EXPECT_GT(micro.groups.size(), 2U);
    EXPECT_EQ(micro.groups.front().bucket_tokens, 512);
    EXPECT_EQ(batch.step, 4);
    EXPECT_EQ(batch.num_seqs_global, 60);
    for (int64_t b = 0; b < micro.num_seqs; ++b) {
      const auto first = static_cast<size_t>(micro.cu_seqlens[static_cast<size_t>(b)]);
      const auto end = static_cast<size_t>(micro.cu_seqlens[static_cast<size_t>(b) + 1]);
      EXPECT_EQ(micro.word_ids[first], 101);
      EXPECT_EQ(micro.word_ids[end - 1], 102);
    }
    EXPECT_EQ(batch.num_tokens_global, plan_.num_tokens_global);
    EXPECT_EQ(batch.num_masked_global, plan_.num_masked_global);
  }
  EXPECT_EQ(slots.size(), 60U);
  EXPECT_EQ(tokens, plan_.num_tokens_global);
  EXPECT_EQ(masked, plan_.num_masked_global);
}

TEST_F(SyntheticBatchTest, TwelvePercentAreMaskTokensAndFewWordsAreFrequent) {
  std::map<int32_t, int64_t> counts;
  int64_t tokens = 0;
  for (const int rank : {0, 1}) {
    const StepBatch batch = of_rank(rank);
    for (const int32_t id : batch.micro_batches.front().word_ids) {
      ASSERT_GE(id, 101);
      ASSERT_LT(id, 30522);
      ++counts[id];
      ++tokens;
    }
    for (const int32_t label : batch.micro_batches.front().masked_labels) {
      EXPECT_NE(label, 103);
      EXPECT_LT(label, 30522);
    }
  }
  EXPECT_NEAR(static_cast<double>(counts[103]) / static_cast<double>(tokens), 0.12, 0.01);
  // log 2 / log 30,419 of the words are the first one, a little less than that of the tokens.
  EXPECT_NEAR(static_cast<double>(counts[104]) / static_cast<double>(tokens), 0.067 * 0.87, 0.01);
  EXPECT_GT(counts.size(), 2000U);
}

TEST(SyntheticSamples, WordsOfLargeVocabulariesAreDrawn) {
  const SyntheticSteps steps{.vocab_size = 119547};
  Draws draws(5, 0);
  SampleSet set;
  append_synthetic_sample(steps, {.tokens = 10'000}, draws, set);
  EXPECT_GT(std::ranges::max(set.token_ids), 100'000);
  EXPECT_LT(std::ranges::max(set.token_ids), 119547);
  EXPECT_GE(std::ranges::min(set.token_ids), 101);
}

TEST_F(SyntheticBatchTest, IsAPureFunctionOfItsArguments) {
  const StepBatch one = of_rank(1);
  const StepBatch other = of_rank(1);
  EXPECT_TRUE(
      std::ranges::equal(one.micro_batches.front().word_ids, other.micro_batches.front().word_ids));
  steps_.seed = 4;
  EXPECT_FALSE(std::ranges::equal(one.micro_batches.front().word_ids,
                                  of_rank(1).micro_batches.front().word_ids));
}

}  // namespace
}  // namespace bertha

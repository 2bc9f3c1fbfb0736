#include "data/pipeline/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "data/format/sample.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"
#include "tests/data/same_samples.h"
#include "tests/support/thread_world.h"

namespace bertha {
namespace {

std::vector<int64_t> random_lengths(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) lengths.push_back(5 + static_cast<int64_t>(random() % 508));
  return lengths;
}

int64_t tokens_of(const std::vector<int64_t>& bin, const std::vector<int64_t>& lengths) {
  int64_t tokens = 0;
  for (const int64_t slot : bin) tokens += lengths[static_cast<size_t>(slot)];
  return tokens;
}

TEST(AssignByLength, GoesToAndFroFromTheLongestAndKeepsTiesInSlotOrder) {
  //                                   slot  0  1  2  3  4  5  6  7  8
  const SlotAssignment assignment =
      assign_by_length(std::vector<int64_t>{4, 9, 4, 7, 1, 4, 8, 2, 4}, 2, 2);
  // By length: 1 6 3 0, then 2 5 8 7 from right to left, then 4.
  ASSERT_EQ(assignment.size(), 4u);
  EXPECT_THAT(assignment[0], ElementsAre(1, 7, 4));  // rank 0, micro-batch 0
  EXPECT_THAT(assignment[1], ElementsAre(6, 8));     // rank 1, micro-batch 0
  EXPECT_THAT(assignment[2], ElementsAre(3, 5));     // rank 0, micro-batch 1
  EXPECT_THAT(assignment[3], ElementsAre(0, 2));     // rank 1, micro-batch 1
}

TEST(AssignByLength, BinsAndRanksDifferByAtMostTheLongestSequence) {
  for (const int64_t seqs : {0, 1, 7, 33, 448, 511}) {
    const std::vector<int64_t> lengths = random_lengths(seqs, static_cast<uint64_t>(seqs));
    const int64_t longest = lengths.empty() ? 0 : std::ranges::max(lengths);
    for (const int num_ranks : {1, 2, 3, 8}) {
      for (const int64_t micro_batches : {1, 2, 5}) {
        const SlotAssignment assignment = assign_by_length(lengths, num_ranks, micro_batches);
        std::vector<int64_t> seen, bin_tokens, rank_tokens(static_cast<size_t>(num_ranks));
        for (size_t bin = 0; bin < assignment.size(); ++bin) {
          seen.insert(seen.end(), assignment[bin].begin(), assignment[bin].end());
          bin_tokens.push_back(tokens_of(assignment[bin], lengths));
          rank_tokens[bin % rank_tokens.size()] += bin_tokens.back();
          EXPECT_TRUE(std::ranges::is_sorted(
              assignment[bin], std::ranges::greater{},
              [&](int64_t slot) { return lengths[static_cast<size_t>(slot)]; }));
        }
        EXPECT_LE(std::ranges::max(bin_tokens) - std::ranges::min(bin_tokens), longest);
        EXPECT_LE(std::ranges::max(rank_tokens) - std::ranges::min(rank_tokens), longest);
        std::ranges::sort(seen);
        std::vector<int64_t> all(static_cast<size_t>(seqs));
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(seen, all);
      }
    }
  }
}

TEST(AssignBySlice, CutsContiguouslyWhetherOrNotTheBatchDivides) {
  EXPECT_THAT(assign_by_slice(10, 3, 1),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5), ElementsAre(6, 7, 8, 9)));
  EXPECT_THAT(assign_by_slice(5, 2, 2),
              ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(1), ElementsAre(3, 4)));
  EXPECT_THAT(assign_by_slice(1, 2, 1), ElementsAre(IsEmpty(), ElementsAre(0)));
}

TEST(Payload, ComesBackEqual) {
  for (const int64_t seqs : {0, 1, 7, 33}) {
    const SampleSet samples = example_samples(seqs, 3, {.vocab_size = 119547});
    std::vector<int64_t> rows;
    std::vector<SampleLength> lengths;
    SampleSet want;
    for (int64_t row = seqs - 1; row >= 0; row -= 2) {
      rows.push_back(row);
      lengths.push_back({.tokens = static_cast<int64_t>(samples[row].token_ids.size()),
                         .masked = static_cast<int64_t>(samples[row].masked_ids.size())});
      want.append(samples[row]);
    }
    const std::vector<std::byte> bytes = encode_samples(samples, rows);
    const SampleSet found = decode_samples(bytes, lengths);
    expect_same_samples(found, want);
    if (lengths.empty()) continue;
    ++lengths[0].tokens;
    EXPECT_THROW(decode_samples(bytes, lengths), Error);
  }
}

/// Rank r brings the slots s with s * s mod W == r, so that ranks bring very different counts.
StepSamples brought_by(const Transport& transport, const SampleSet& samples) {
  StepSamples mine;
  for (int64_t slot = 0; slot < samples.size(); ++slot) {
    if (slot * slot % transport.size() != transport.rank()) continue;
    mine.slots.push_back(slot);
    mine.samples.append(samples[slot]);
  }
  return mine;
}

class EachMode : public ::testing::TestWithParam<ExchangePadding> {};
INSTANTIATE_TEST_SUITE_P(Exchange, EachMode,
                         ::testing::Values(ExchangePadding::kAllGather, ExchangePadding::kLengths));

TEST_P(EachMode, EveryRankHoldsWhatTheDealSays) {
  const SampleSet samples = example_samples(33, 4);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 33; ++i) {
    lengths.push_back(static_cast<int64_t>(samples[i].token_ids.size()));
  }
  for (const int num_ranks : {1, 2, 3, 4}) {
    const SlotAssignment assignment = assign_by_length(lengths, num_ranks, 2);
    run_thread_ranks(num_ranks, [&](Transport& transport) {
      const ExchangedStep step =
          exchange({.global_batch_seqs = 33, .micro_batches_per_step = 2, .exchange = GetParam()},
                   brought_by(transport, samples), transport);
      ASSERT_EQ(step.micro_batches.size(), 2u);
      for (size_t m = 0; m < 2; ++m) {
        const auto& slots =
            assignment[m * static_cast<size_t>(num_ranks) + static_cast<size_t>(transport.rank())];
        ASSERT_EQ(step.micro_batches[m].size(), slots.size());
        for (size_t i = 0; i < slots.size(); ++i) {
          EXPECT_EQ(step.micro_batches[m][i].id, slots[i]);
          EXPECT_TRUE(
              std::ranges::equal(step.micro_batches[m][i].token_ids, samples[slots[i]].token_ids));
        }
      }
      EXPECT_EQ(step.counts.num_tokens_global, samples.token_offsets.back());
      EXPECT_EQ(step.counts.num_masked_global, samples.masked_offsets.back());
    });
  }
}

TEST(Exchange, LengthsModeMovesFewerBytesThanAllGather) {
  const SampleSet samples = example_samples(200, 4);
  const auto bytes_of_mode = [&](ExchangePadding mode) {
    ThreadWorld world(4);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] {
        Transport& transport = world.transport(rank);
        exchange({.global_batch_seqs = 200, .exchange = mode}, brought_by(transport, samples),
                 transport);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return world.bytes_sent();
  };
  // All-gather sends every sample to three ranks, the other mode to one rank at most.
  EXPECT_LT(2 * bytes_of_mode(ExchangePadding::kLengths),
            bytes_of_mode(ExchangePadding::kAllGather));
}

TEST(Exchange, SlotThatNobodyBringsIsAnInternalErrorOnAllRanks) {
  const SampleSet samples = example_samples(10, 4);
  EXPECT_THROW(run_thread_ranks(2,
                                [&](Transport& transport) {
                                  exchange({.global_batch_seqs = 11},
                                           brought_by(transport, samples), transport);
                                }),
               Error);
}

TEST(GatherValues, LowestFailingRankIsHeardByAll) {
  run_thread_ranks(4, [](Transport& transport) {
    Contribution mine{.values = {transport.rank()}};
    if (transport.rank() >= 2) {
      mine.kind = Contribution::Kind::kFailure;
      mine.failure = std::make_exception_ptr(
          Error(ExitCode::kData, concat("shard of rank ", transport.rank())));
    }
    EXPECT_EQ(error_of([&] { gather_values(transport, mine); }), "shard of rank 2");
    const auto values = gather_values(
        transport, {.values = std::vector<int64_t>(static_cast<size_t>(transport.rank()), 5)});
    for (size_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(values[rank], std::vector<int64_t>(rank, 5));
    }
  });
}

TEST(SumValues, AddsUpWhereNoRankFails) {
  run_thread_ranks(3, [](Transport& transport) {
    const std::vector<int64_t> sums =
        sum_values(transport, {.values = {transport.rank(), int64_t{1} << 60}}, 2);
    EXPECT_THAT(sums, ElementsAre(3, int64_t{3} << 60));
  });
}

TEST(SumValues, LowestFailingRankIsHeardByAll) {
  run_thread_ranks(4, [](Transport& transport) {
    Contribution mine{.values = {1, 2, 3}};
    if (transport.rank() >= 2) {
      mine = {.kind = Contribution::Kind::kFailure,
              .values = {},
              .failure = std::make_exception_ptr(
                  Error(ExitCode::kData, concat("shard of rank ", transport.rank())))};
    }
    EXPECT_EQ(error_of([&] { sum_values(transport, mine, 3); }), "shard of rank 2");
  });
}

TEST(Exchange, ASlotThatTwoRanksBringIsAnInternalErrorOnAllRanks) {
  const SampleSet samples = example_samples(10, 4);
  run_thread_ranks(2, [&](Transport& transport) {
    StepSamples mine{.slots = {0, 1}, .samples = {}};
    for (const int64_t slot : mine.slots) mine.samples.append(samples[slot]);
    EXPECT_THROW(exchange({.global_batch_seqs = 2}, std::move(mine), transport), Error);
  });
}

}  // namespace
}  // namespace bertha

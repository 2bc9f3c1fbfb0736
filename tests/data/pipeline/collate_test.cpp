#include "data/pipeline/collate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "data/pipeline/pipeline.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

std::vector<SampleView> views_of(const SampleSet& samples) {
  std::vector<SampleView> views;
  for (int64_t i = 0; i < samples.size(); ++i) views.push_back(samples[i]);
  return views;
}

SampleSet two_samples() {
  SampleSet samples;
  samples.append({.id = 40,
                  .token_ids = std::vector<TokenId>{101, 7, 102},
                  .segment_ids = std::vector<int8_t>{0, 0, 1},
                  .masked_positions = std::vector<int16_t>{1},
                  .masked_ids = std::vector<TokenId>{70},
                  .next_sentence_label = 1});
  samples.append({.id = 30,
                  .token_ids = std::vector<TokenId>{101, 8, 9, 10, 102},
                  .segment_ids = std::vector<int8_t>{0, 0, 1, 1, 1},
                  .masked_positions = std::vector<int16_t>{2, 3},
                  .masked_ids = std::vector<TokenId>{90, 95},
                  .next_sentence_label = 0});
  return samples;
}

TEST(Collate, LaysOutSequencesLongestFirst) {
  const SampleSet samples = two_samples();
  const HostBatch batch = collate(views_of(samples), 4, plain_host_allocator());
  EXPECT_EQ(batch.num_seqs, 2);
  EXPECT_EQ(batch.num_tokens, 8);
  EXPECT_EQ(batch.num_masked, 3);
  EXPECT_THAT(batch.word_ids, ElementsAre(101, 8, 9, 10, 102, 101, 7, 102));
  EXPECT_THAT(batch.segment_ids, ElementsAre(0, 0, 1, 1, 1, 0, 0, 1));
  EXPECT_THAT(batch.position_ids, ElementsAre(0, 1, 2, 3, 4, 0, 1, 2));
  // Ids 7, 8, 9, 10, 101 (twice), 102 (twice).
  EXPECT_THAT(batch.rows_by_word, ElementsAre(6, 1, 2, 3, 0, 5, 4, 7));
  EXPECT_THAT(batch.cu_seqlens, ElementsAre(0, 5, 8));
  EXPECT_THAT(batch.masked_positions, ElementsAre(2, 3, 6));
  EXPECT_THAT(batch.masked_labels, ElementsAre(90, 95, 70));
  EXPECT_THAT(batch.next_sentence_labels, ElementsAre(0, 1));
  EXPECT_THAT(batch.sample_ids, ElementsAre(30, 40));
}

TEST(Collate, GroupsConsecutiveSequencesOfTheSameLengthBucket) {
  SampleSet samples;
  for (const size_t length : {5, 16, 17, 31, 33, 48, 16}) {
    samples.append({.id = static_cast<int64_t>(samples.size()),
                    .token_ids = std::vector<TokenId>(length, 9),
                    .segment_ids = std::vector<int8_t>(length, 0),
                    .masked_positions = std::vector<int16_t>{1},
                    .masked_ids = std::vector<TokenId>{9}});
  }
  const HostBatch batch = collate(views_of(samples), 16, plain_host_allocator());
  EXPECT_THAT(batch.sample_ids, ElementsAre(5, 4, 3, 2, 1, 6, 0));  // stable: 1 before 6
  ASSERT_EQ(batch.groups.size(), 3u);
  const auto expect_group = [&](size_t g, const SequenceGroup& want) {
    EXPECT_EQ(batch.groups[g].first_seq, want.first_seq);
    EXPECT_EQ(batch.groups[g].num_seqs, want.num_seqs);
    EXPECT_EQ(batch.groups[g].first_token, want.first_token);
    EXPECT_EQ(batch.groups[g].num_tokens, want.num_tokens);
    EXPECT_EQ(batch.groups[g].longest_seq_tokens, want.longest_seq_tokens);
    EXPECT_EQ(batch.groups[g].bucket_tokens, want.bucket_tokens);
  };
  expect_group(0, {0, 2, 0, 81, 48, 48});
  expect_group(1, {2, 2, 81, 48, 31, 32});
  expect_group(2, {4, 3, 129, 37, 16, 16});
}

TEST(Collate, NoSamplesGiveAnEmptyBatch) {
  const HostBatch batch = collate({}, 128, plain_host_allocator());
  EXPECT_EQ(batch.num_seqs, 0);
  EXPECT_EQ(batch.num_tokens, 0);
  EXPECT_THAT(batch.cu_seqlens, ElementsAre(0));
  EXPECT_THAT(batch.word_ids, IsEmpty());
  EXPECT_THAT(batch.groups, IsEmpty());
}

TEST(Collate, ArraysAreApartAndAlignedInsideOneAllocation) {
  for (const int64_t seqs : {0, 1, 7, 33}) {
    int allocations = 0;
    int64_t block_bytes = 0;
    const HostAllocator counting = [&](int64_t bytes) {
      ++allocations;
      block_bytes = bytes;
      return plain_host_allocator()(bytes);
    };
    const SampleSet samples = example_samples(seqs, 5);
    const HostBatch batch = collate(views_of(samples), 128, counting);
    EXPECT_EQ(allocations, 1);
    auto end = reinterpret_cast<uintptr_t>(batch.block.get());
    const uintptr_t block_end = end + static_cast<uintptr_t>(block_bytes);
    for (const std::span<int32_t> array :
         {batch.word_ids, batch.segment_ids, batch.position_ids, batch.rows_by_word,
          batch.cu_seqlens, batch.masked_positions, batch.masked_labels,
          batch.next_sentence_labels}) {
      const auto begin = reinterpret_cast<uintptr_t>(array.data());
      EXPECT_EQ(begin % 64, 0u);
      EXPECT_GE(begin, end);
      end = begin + array.size_bytes();
    }
    EXPECT_LE(end, block_end);
  }
}

TEST(Collate, RowsByWordAscendInWordAndRow) {
  for (const int64_t seqs : {0, 1, 33}) {
    const SampleSet samples = example_samples(seqs, 9, {.vocab_size = 119547});
    const HostBatch batch = collate(views_of(samples), 128, plain_host_allocator());
    ASSERT_EQ(std::ssize(batch.rows_by_word), batch.num_tokens);
    const auto key = [&](size_t place) {
      const int32_t row = batch.rows_by_word[place];
      EXPECT_LT(row, batch.num_tokens);
      return std::pair(batch.word_ids[static_cast<size_t>(row)], row);
    };
    // Each of T rows in [0, T) is different from the others, so that none is left out.
    for (size_t place = 1; place < batch.rows_by_word.size(); ++place) {
      ASSERT_LT(key(place - 1), key(place));
    }
  }
}

TEST(Collate, MaskedRowsPointAtTheRightTokens) {
  const SampleSet samples = example_samples(33, 9);
  const HostBatch batch = collate(views_of(samples), 128, plain_host_allocator());
  ASSERT_EQ(batch.num_masked, samples.masked_offsets.back());
  size_t at = 0;
  for (size_t seq = 0; seq < batch.sample_ids.size(); ++seq) {
    const SampleView sample = samples[batch.sample_ids[seq]];
    for (size_t m = 0; m < sample.masked_positions.size(); ++m, ++at) {
      const auto row = static_cast<size_t>(batch.masked_positions[at]);
      EXPECT_EQ(static_cast<int64_t>(row), batch.cu_seqlens[seq] + sample.masked_positions[m]);
      EXPECT_EQ(batch.position_ids[row], sample.masked_positions[m]);
      EXPECT_EQ(batch.word_ids[row],
                sample.token_ids[static_cast<size_t>(sample.masked_positions[m])]);
      EXPECT_EQ(batch.masked_labels[at], sample.masked_ids[m]);
    }
  }
}

}  // namespace
}  // namespace bertha

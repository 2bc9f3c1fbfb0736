#include "data/pipeline/dynamic_masks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/data/same_samples.h"

namespace bertha {
namespace {

constexpr SpecialTokens kSpecial{.pad = 9, .unknown = 1, .classify = 2, .separator = 3, .mask = 4};
constexpr int64_t kEntries = 1000;

MaskRule rule(double fraction = 0.15) {
  return {.fraction = fraction, .special = kSpecial, .vocab_size = kEntries};
}

/// Words without special tokens; the id of the piece at a place follows from the place.
TokenId word_at(int64_t place) { return static_cast<TokenId>(10 + place % 900); }

/// [CLS] A [SEP] B [SEP], with masks that a shard might have stored.
SampleSet sample_of(int64_t tokens, int64_t id, bool stored_masks = true) {
  std::vector<TokenId> ids;
  for (int64_t at = 0; at < tokens; ++at) ids.push_back(word_at(at));
  ids.front() = kSpecial.classify;
  ids[static_cast<size_t>(tokens / 2)] = kSpecial.separator;
  ids.back() = kSpecial.separator;
  std::vector<int8_t> segments(ids.size());
  std::fill(segments.begin() + tokens / 2 + 1, segments.end(), int8_t{1});
  std::vector<int16_t> positions;
  std::vector<TokenId> labels;
  for (int16_t at = 1; stored_masks && at < tokens - 1; at = static_cast<int16_t>(at + 7)) {
    if (at == tokens / 2) continue;
    positions.push_back(at);
    labels.push_back(ids[static_cast<size_t>(at)]);
    ids[static_cast<size_t>(at)] = at % 2 == 0 ? kSpecial.mask : kSpecial.separator;
  }
  SampleSet set;
  set.append({.id = id,
              .token_ids = ids,
              .segment_ids = segments,
              .masked_positions = positions,
              .masked_ids = labels,
              .next_sentence_label = 1});
  return set;
}

SampleSet drawn(const MaskRule& how, uint64_t seed, const SampleSet& samples, int64_t epoch,
                int64_t most = 1000) {
  MaskDrawer drawer(how, seed, most);
  SampleSet set;
  for (int64_t i = 0; i < samples.size(); ++i) drawer.append(samples[i], epoch, set);
  return set;
}

bool is_near(double found, double mean, double trials) {
  // Five standard deviations of a binomial count.
  return std::abs(found - mean) < 5 * std::sqrt(mean * (1 - mean / trials)) + 1;
}

TEST(WantedMasks, RoundHalvesToEvenAndAreOneAtLeast) {
  EXPECT_EQ(num_masks(10, 0.25), 2);
  EXPECT_EQ(num_masks(6, 0.25), 2);
  EXPECT_EQ(num_masks(14, 0.25), 4);
  EXPECT_EQ(num_masks(512, 0.15), 77);
  EXPECT_EQ(num_masks(3, 0.15), 1);
  EXPECT_EQ(num_masks(100, 0.4), 40);
}

TEST(MaskDrawer, LabelsAreTheOriginalTokensAndSpecialTokensAreNeverMasked) {
  for (const double fraction : {0.01, 0.15, 0.9}) {
    for (const int64_t tokens : {4, 5, 20, 128}) {
      const SampleSet set = drawn(rule(fraction), 1, sample_of(tokens, 6), 2);
      const SampleView found = set[0];
      EXPECT_EQ(found.id, 6);
      EXPECT_EQ(found.next_sentence_label, 1);
      ASSERT_EQ(std::ssize(found.token_ids), tokens);
      const int64_t candidates = tokens - 3;
      EXPECT_EQ(std::ssize(found.masked_ids), std::min(num_masks(tokens, fraction), candidates));
      check_sample(found, 0, {.max_masked_per_seq = 128, .vocab_size = kEntries},
                   [](const Violation& wrong) { FAIL() << wrong.what; });
      std::map<int64_t, TokenId> label_at;
      for (size_t m = 0; m < found.masked_ids.size(); ++m) {
        label_at[found.masked_positions[m]] = found.masked_ids[m];
      }
      const SampleSet plain = sample_of(tokens, 6, false);
      for (int64_t at = 0; at < tokens; ++at) {
        const TokenId original = plain.token_ids[static_cast<size_t>(at)];
        if (label_at.contains(at)) {
          EXPECT_EQ(label_at[at], original);
          EXPECT_NE(original, kSpecial.separator);
        } else {
          EXPECT_EQ(found.token_ids[static_cast<size_t>(at)], original);
        }
      }
    }
  }
}

TEST(MaskDrawer, WhatTheShardMaskedMakesNoDifference) {
  expect_same_contents(drawn(rule(), 5, sample_of(128, 3), 1),
                       drawn(rule(), 5, sample_of(128, 3, false), 1));
}

TEST(MaskDrawer, PaddingAndTheCapAreKept) {
  SampleSet set = sample_of(20, 0, false);
  std::fill(set.token_ids.begin() + 4, set.token_ids.begin() + 10, kSpecial.pad);
  const SampleSet found = drawn(rule(0.9), 1, set, 0);
  EXPECT_EQ(std::ranges::count(found.token_ids, kSpecial.pad), 6);
  EXPECT_EQ(std::ssize(found.masked_ids), 20 - 3 - 6);
  EXPECT_EQ(std::ssize(drawn(rule(0.9), 1, set, 0, 4).masked_ids), 4);
}

TEST(MaskDrawer, ASampleOfSpecialTokensAloneHasNoMask) {
  SampleSet set = sample_of(4, 0, false);
  set.token_ids = {kSpecial.classify, kSpecial.separator, kSpecial.separator, kSpecial.pad};
  EXPECT_TRUE(drawn(rule(), 1, set, 0).masked_ids.empty());
}

TEST(MaskDrawer, DependsOnSeedEpochAndSampleAlone) {
  const auto positions = [](uint64_t seed, int64_t epoch, int64_t id) {
    return drawn(rule(), seed, sample_of(200, id), epoch).masked_positions;
  };
  const auto once = positions(1, 0, 0);
  EXPECT_EQ(positions(1, 0, 0), once);
  for (const auto& other : {positions(2, 0, 0), positions(1, 1, 0), positions(1, 0, 1),
                            positions(1, 0, int64_t{1} << 32)}) {
    EXPECT_NE(other, once);
  }
  // In the company of others and alone.
  SampleSet both = sample_of(200, 7);
  both.append(sample_of(200, 0)[0]);
  const SampleSet found = drawn(rule(), 1, both, 0);
  EXPECT_THAT(found[1].masked_positions, ElementsAreArray(once));
}

TEST(MaskDrawer, PositionsAreUniformAndEightyTenTen) {
  constexpr int64_t kTokens = 40, kSamples = 4000;
  std::vector<double> masked_at(kTokens, 0.0);
  std::map<TokenId, double> random_words;
  double masks = 0, kept = 0, random = 0, all = 0;
  for (int64_t id = 0; id < kSamples; ++id) {
    const SampleSet set = drawn(rule(0.2), 3, sample_of(kTokens, id), id % 3);
    EXPECT_EQ(set.masked_ids.size(), 8u);
    for (size_t m = 0; m < set.masked_ids.size(); ++m) {
      const auto at = static_cast<size_t>(set.masked_positions[m]);
      const TokenId token = set.token_ids[at];
      ++masked_at[at];
      ++all;
      if (token == kSpecial.mask) {
        ++masks;
      } else if (token == set.masked_ids[m]) {
        ++kept;
      } else {
        ++random;
        ++random_words[token];
      }
    }
  }
  // A random word is [MASK] or the original one in a thousandth of the draws each.
  EXPECT_TRUE(is_near(masks, all * (0.8 + 0.1 / kEntries), all)) << masks / all;
  EXPECT_TRUE(is_near(kept, all * (0.1 + 0.1 / kEntries), all)) << kept / all;
  EXPECT_TRUE(is_near(random, all * 0.1 * (kEntries - 2) / kEntries, all)) << random / all;
  for (const int64_t special : {int64_t{0}, kTokens / 2, kTokens - 1}) {
    EXPECT_EQ(masked_at[static_cast<size_t>(special)], 0);
    masked_at[static_cast<size_t>(special)] = 8.0 * kSamples / (kTokens - 3);
  }
  for (size_t at = 0; at < masked_at.size(); ++at) {
    EXPECT_TRUE(is_near(masked_at[at], 8.0 * kSamples / (kTokens - 3), kSamples)) << at;
  }
  // Over the whole vocabulary, special ids included.
  EXPECT_GT(random_words.size(), 900u);
  EXPECT_LT(random_words.begin()->first, 10);
  EXPECT_GT(random_words.rbegin()->first, 990);
}

/// Pieces with odd ids continue a word, but those at multiples of five.
MaskRule whole_words(double fraction = 0.15) {
  MaskRule how = rule(fraction);
  auto continues = std::make_shared<std::vector<bool>>();
  for (int64_t id = 0; id < kEntries; ++id) continues->push_back(id % 2 == 1 || id % 5 == 0);
  how.continues_word = std::move(continues);
  return how;
}

TEST(MaskDrawer, WholeWordsAreNeverSplit) {
  const MaskRule how = whole_words();
  double words_of_several = 0, masked = 0;
  for (int64_t id = 0; id < 500; ++id) {
    const SampleSet plain = sample_of(120, id, false);
    const SampleSet set = drawn(how, 3, sample_of(120, id), 0);
    std::vector<bool> is_masked(120);
    for (const int16_t at : set.masked_positions) is_masked[static_cast<size_t>(at)] = true;
    EXPECT_LE(set.masked_ids.size(), 18u);
    EXPECT_GE(set.masked_ids.size(), 15u);  // a word of up to three pieces and no more is left out
    masked += static_cast<double>(set.masked_ids.size());
    for (size_t at = 2; at + 1 < 120; ++at) {
      const bool in_word = (*how.continues_word)[static_cast<size_t>(plain.token_ids[at])] &&
                           plain.token_ids[at - 1] != kSpecial.separator &&
                           plain.token_ids[at] != kSpecial.separator;
      if (!in_word) continue;
      EXPECT_EQ(is_masked[at], is_masked[at - 1]) << id << " at " << at;
      words_of_several += is_masked[at] ? 1 : 0;
    }
  }
  EXPECT_GT(words_of_several, 1000);
  EXPECT_GT(masked / 500, 17);
}

TEST(MaskDrawer, AWordThatIsLongerThanWantedIsMaskedWholeOrNotAtAll) {
  SampleSet set = sample_of(12, 0, false);
  for (int64_t at = 1; at < 11; ++at) set.token_ids[static_cast<size_t>(at)] = 11;  // continue
  set.token_ids[1] = 12;
  set.token_ids[6] = kSpecial.separator;
  // Words at 1 to 5 and 7 to 10; two tokens are wanted.
  const SampleSet found = drawn(whole_words(), 1, set, 0);
  EXPECT_THAT(found.masked_positions, ElementsAre(7, 8, 9, 10));
  EXPECT_TRUE(drawn(whole_words(), 1, set, 0, 3).masked_positions.empty());
}

TEST(MaskDrawer, ASampleOfAnotherVocabularyIsRefused) {
  MaskRule other = rule();
  other.special.classify = 101;
  EXPECT_THAT(error_of([&] { drawn(other, 1, sample_of(20, 5), 0); }, ExitCode::kData),
              AllOf(HasSubstr("sample 5"), HasSubstr("data.vocab")));
}

}  // namespace
}  // namespace bertha

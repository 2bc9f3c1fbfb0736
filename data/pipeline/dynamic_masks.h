#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/format/sample.h"
#include "data/random/draws.h"

namespace bertha {

/// How training samples are masked anew in every epoch.
struct MaskRule {
  double fraction = 0.15;  // share of the tokens, special ones included
  SpecialTokens special = {};
  int64_t vocab_size = 0;  // entries, among which random words are drawn
  // [vocab_size]  ids of the pieces that continue a word, which are masked together with it; null:
  // every piece for itself.
  std::shared_ptr<const std::vector<bool>> continues_word = {};
};

/// Masked tokens of a sequence: its tokens times the fraction, halves to even, at least one.
int64_t num_masks(int64_t tokens, double fraction);

/// Draws masks, after undoing the sample's earlier masks.
///
/// Candidates are all tokens except [CLS], [SEP] and [PAD]; num_masks() of them are chosen evenly.
/// With whole words, words are drawn until that number is reached, and those that would exceed it
/// are left out; if every word exceeds it, the shortest one may be drawn, up to `most_masked`
/// tokens. Of the chosen tokens 80 % become [MASK], 10 % a random entry of the vocabulary, and 10 %
/// stay.
///
/// Random    a pure function of the seed, the epoch, and the id and tokens of the sample.
/// Threads   one per object.
class MaskDrawer {
 public:
  MaskDrawer(MaskRule rule, uint64_t seed, int64_t most_masked);

  /// Adds the sample with its masks of this epoch.
  void append(const SampleView& sample, int64_t epoch, SampleSet& to);

 private:
  /// Tokens [begin, end) that are masked together.
  struct Word {
    int16_t begin = 0;
    int16_t end = 0;
    int64_t size() const { return end - begin; }
  };

  void find_words();
  void choose(int64_t wanted, Draws& draws);
  void replace(Draws& draws);

  MaskRule rule_;
  uint64_t seed_;
  int64_t max_masked_;
  // The current sample.
  std::vector<TokenId> tokens_;
  std::vector<Word> words_;  // candidates
  std::vector<int16_t> positions_;
  std::vector<TokenId> labels_;
};

}  // namespace bertha

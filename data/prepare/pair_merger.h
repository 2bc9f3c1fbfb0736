#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <unordered_map>
#include <vector>

namespace bertha {

/// Words as sequences of symbols, whose most frequent neighbors are merged repeatedly. Symbols are
/// numbers whose meaning the caller defines.
class PairMerger {
 public:
  struct Pair {
    int32_t left = 0;
    int32_t right = 0;
    int64_t count = 0;
  };

  /// At any time: pairs that were merged before are merged again in a new word.
  void add_word(std::vector<int32_t> symbols, int64_t count);

  /// The most frequent pair that occurs at least `least_count` times; among equally frequent ones,
  /// the pair with the smaller symbols. Nothing if there is none.
  std::optional<Pair> most_frequent(int64_t least_count);
  /// Replaces the pair by `merged` in all words, from left to right.
  void merge(Pair pair, int32_t merged);

 private:
  struct Word {
    std::vector<int32_t> symbols;
    int64_t count = 0;
  };
  struct Occurrences {
    int64_t count = 0;
    std::vector<int32_t> words;  // words that have or had the pair; may repeat
  };
  struct Candidate {
    int64_t count = 0;
    uint64_t key = 0;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  }
  void merge_in_word(int32_t word_index, Pair pair, int32_t merged);
  void gain(int32_t left, int32_t right, int32_t word_index);
  void lose(int32_t left, int32_t right, int32_t word_index);
  void push_gained();

  std::vector<Word> words_;
  std::unordered_map<uint64_t, Occurrences> pairs_;
  std::priority_queue<Candidate> candidates_;  // counts may be out of date; checked when taken
  std::vector<uint64_t> gained_;               // pairs whose count grew since the last push
};

}  // namespace bertha

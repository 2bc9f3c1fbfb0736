#include "data/prepare/pair_merger.h"

#include <algorithm>
#include <utility>

namespace bertha {

void PairMerger::add_word(std::vector<int32_t> symbols, int64_t count) {
  const auto index = static_cast<int32_t>(words_.size());
  words_.push_back(Word{.symbols = std::move(symbols), .count = count});
  const std::vector<int32_t>& added = words_.back().symbols;
  for (size_t at = 0; at + 1 < added.size(); ++at) gain(added[at], added[at + 1], index);
}

std::optional<PairMerger::Pair> PairMerger::most_frequent(int64_t least_count) {
  push_gained();
  while (!candidates_.empty()) {
    const Candidate best = candidates_.top();
    const auto found = pairs_.find(best.key);
    const int64_t count = found == pairs_.end() ? 0 : found->second.count;
    if (count == best.count && count >= least_count) {
      return Pair{.left = static_cast<int32_t>(best.key >> 32),
                  .right = static_cast<int32_t>(best.key & 0xffffffffu),
                  .count = count};
    }
    candidates_.pop();
    if (count < best.count && count >= least_count) {
      candidates_.push(Candidate{.count = count, .key = best.key});
    }
  }
  return std::nullopt;
}

void PairMerger::merge(Pair pair, int32_t merged) {
  const auto found = pairs_.find(key_of(pair.left, pair.right));
  if (found == pairs_.end()) return;
  std::vector<int32_t> where = std::move(found->second.words);
  std::ranges::sort(where);
  where.erase(std::unique(where.begin(), where.end()), where.end());
  for (const int32_t word_index : where) merge_in_word(word_index, pair, merged);
  pairs_.erase(key_of(pair.left, pair.right));
}

void PairMerger::merge_in_word(int32_t word_index, Pair pair, int32_t merged) {
  std::vector<int32_t>& symbols = words_[static_cast<size_t>(word_index)].symbols;
  for (size_t at = 0; at + 1 < symbols.size(); ++at) {
    if (symbols[at] != pair.left || symbols[at + 1] != pair.right) continue;
    if (at > 0) {
      lose(symbols[at - 1], pair.left, word_index);
      gain(symbols[at - 1], merged, word_index);
    }
    if (at + 2 < symbols.size()) {
      lose(pair.right, symbols[at + 2], word_index);
      gain(merged, symbols[at + 2], word_index);
    }
    symbols[at] = merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

void PairMerger::gain(int32_t left, int32_t right, int32_t word_index) {
  Occurrences& occurrences = pairs_[key_of(left, right)];
  occurrences.count += words_[static_cast<size_t>(word_index)].count;
  if (occurrences.words.empty() || occurrences.words.back() != word_index) {
    occurrences.words.push_back(word_index);
  }
  gained_.push_back(key_of(left, right));
}

void PairMerger::lose(int32_t left, int32_t right, int32_t word_index) {
  const auto found = pairs_.find(key_of(left, right));
  if (found != pairs_.end()) {
    found->second.count -= words_[static_cast<size_t>(word_index)].count;
  }
}

void PairMerger::push_gained() {
  std::ranges::sort(gained_);
  gained_.erase(std::unique(gained_.begin(), gained_.end()), gained_.end());
  for (const uint64_t key : gained_) {
    const auto found = pairs_.find(key);
    if (found != pairs_.end()) {
      candidates_.push(Candidate{.count = found->second.count, .key = key});
    }
  }
  gained_.clear();
}

}  // namespace bertha

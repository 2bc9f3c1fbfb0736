#include "data/pipeline/dynamic_masks.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {
namespace {

// Apart from the keys of the sample order, see epoch_plan.cpp.
constexpr uint64_t kMaskKey = 0x4D41534B53303031;  // "MASKS001"

}  // namespace

int64_t num_masks(int64_t tokens, double fraction) {
  // nearbyint rounds halves to even, as the published generator does.
  const double wanted = std::nearbyint(static_cast<double>(tokens) * fraction);
  return std::max<int64_t>(1, static_cast<int64_t>(wanted));
}

MaskDrawer::MaskDrawer(MaskRule rule, uint64_t seed, int64_t most_masked)
    : rule_(std::move(rule)), seed_(seed ^ kMaskKey), max_masked_(most_masked) {
  const auto& continues = rule_.continues_word;
  BERTHA_CHECK(!continues || std::ssize(*continues) == rule_.vocab_size, "a vocabulary of ",
               rule_.vocab_size, " entries");
}

void MaskDrawer::append(const SampleView& sample, int64_t epoch, SampleSet& to) {
  if (sample.token_ids.empty() || sample.token_ids.front() != rule_.special.classify) {
    fail(ExitCode::kData, "sample ", sample.id, " of data.train does not begin with [CLS], id ",
         rule_.special.classify, "; set data.vocab to the vocabulary of the shards");
  }
  tokens_.assign(sample.token_ids.begin(), sample.token_ids.end());
  for (size_t m = 0; m < sample.masked_ids.size(); ++m) {
    tokens_[static_cast<size_t>(sample.masked_positions[m])] = sample.masked_ids[m];
  }
  find_words();
  Draws draws(mixed_seed(seed_, static_cast<uint64_t>(epoch)), sample.id,
              static_cast<uint32_t>(sample.id >> 32));
  choose(num_masks(std::ssize(tokens_), rule_.fraction), draws);
  replace(draws);
  SampleView masked = sample;
  masked.token_ids = tokens_;
  masked.masked_positions = positions_;
  masked.masked_ids = labels_;
  to.append(masked);
}

void MaskDrawer::find_words() {
  const auto is_special = [&](TokenId id) {
    return id == rule_.special.classify || id == rule_.special.separator || id == rule_.special.pad;
  };
  const auto continues = [&](TokenId id) {
    return rule_.continues_word && id < rule_.vocab_size &&
           (*rule_.continues_word)[static_cast<size_t>(id)];
  };
  words_.clear();
  for (int16_t at = 0; at < std::ssize(tokens_); ++at) {
    const TokenId id = tokens_[static_cast<size_t>(at)];
    if (is_special(id)) continue;
    const auto next = static_cast<int16_t>(at + 1);
    if (!words_.empty() && words_.back().end == at && continues(id)) {
      words_.back().end = next;
    } else {
      words_.push_back({.begin = at, .end = next});
    }
  }
}

void MaskDrawer::choose(int64_t wanted, Draws& draws) {
  positions_.clear();
  if (words_.empty()) return;
  const int64_t shortest = std::ranges::min_element(words_, {}, &Word::size)->size();
  const int64_t most = std::min(std::max(wanted, shortest), max_masked_);
  const auto num_words = std::ssize(words_);
  for (int64_t i = 0; i < num_words && std::ssize(positions_) < most; ++i) {
    const auto drawn = static_cast<size_t>(i + draws.below(num_words - i));
    const Word word = words_[drawn];
    words_[drawn] = words_[static_cast<size_t>(i)];
    if (std::ssize(positions_) + word.size() > most) continue;
    for (int16_t at = word.begin; at < word.end; ++at) positions_.push_back(at);
  }
  std::ranges::sort(positions_);
}

void MaskDrawer::replace(Draws& draws) {
  labels_.clear();
  for (const int16_t position : positions_) {
    TokenId& token = tokens_[static_cast<size_t>(position)];
    labels_.push_back(token);
    const double share = draws.share();
    if (share < 0.8) {
      token = rule_.special.mask;
    } else if (share < 0.9) {
      token = static_cast<TokenId>(draws.below(rule_.vocab_size));
    }
  }
}

}  // namespace bertha

#include "data/prepare/pairs_and_masks.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "data/random/python_random.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kSpecialTokens = 3;  // [CLS], [SEP], [SEP]
constexpr int64_t kTriesForOtherDocument = 10;

/// Consecutive tokens of the documents; shortened at either end by truncation.
struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

class Generator {
 public:
  Generator(const Documents& documents, const Vocabulary& vocabulary,
            const GeneratorOptions& options)
      : documents_(documents),
        special_(vocabulary.special()),
        vocab_size_(vocabulary.size()),
        options_(options),
        max_tokens_(options.max_seq_tokens - kSpecialTokens),
        random_(options.seed) {}

  GeneratedSamples run() {
    document_order_.resize(static_cast<size_t>(documents_.size()));
    std::iota(document_order_.begin(), document_order_.end(), int64_t{0});
    random_.shuffle(std::span(document_order_));
    for (int64_t pass = 0; pass < options_.duplication; ++pass) {
      for (int64_t place = 0; place < documents_.size(); ++place) {
        if (options_.segments == Segments::kPairs) {
          pair_sentences(place);
        } else {
          cut_blocks(place);
        }
      }
      if (pass == 0) reserve_for(options_.duplication);
    }
    GeneratedSamples result{.samples = std::move(samples_),
                            .order = {},
                            .dropped_tokens = dropped_tokens_ / options_.duplication};
    result.order.resize(static_cast<size_t>(result.samples.size()));
    std::iota(result.order.begin(), result.order.end(), int64_t{0});
    random_.shuffle(std::span(result.order));
    return result;
  }

 private:
  /// First sentence of the document at a place of the shuffled order.
  int64_t first_sentence(int64_t place) const {
    const auto document = static_cast<size_t>(document_order_[static_cast<size_t>(place)]);
    return documents_.document_offsets[document];
  }
  int64_t end_sentence(int64_t place) const {
    const auto document = static_cast<size_t>(document_order_[static_cast<size_t>(place)]);
    return documents_.document_offsets[document + 1];
  }
  Segment sentences(int64_t begin, int64_t end) const {
    return Segment{.begin = documents_.sentence_offsets[static_cast<size_t>(begin)],
                   .end = documents_.sentence_offsets[static_cast<size_t>(end)]};
  }

  /// All samples of one document in one pass. A chunk is a run of sentences of about the target
  /// length; its first sentences are segment A.
  void pair_sentences(int64_t place) {
    int64_t target_tokens = max_tokens_;
    if (random_.random() < options_.short_seq_probability) {
      target_tokens = random_.randint(2, max_tokens_);
    }
    const int64_t end = end_sentence(place);
    int64_t chunk_begin = first_sentence(place);
    for (int64_t last = chunk_begin; last < end; ++last) {
      if (last != end - 1 && sentences(chunk_begin, last + 1).size() < target_tokens) continue;
      const int64_t chunk_sentences = last + 1 - chunk_begin;
      const int64_t a_sentences =
          chunk_sentences >= 2 ? random_.randint(1, chunk_sentences - 1) : 1;
      const int64_t a_end = chunk_begin + a_sentences;
      Segment a = sentences(chunk_begin, a_end);
      // A chunk of one sentence has no next sentence, so no number is drawn.
      const bool is_random_next = chunk_sentences == 1 || random_.random() < 0.5;
      Segment b;
      if (is_random_next) {
        b = random_segment(place, target_tokens - a.size());
        last = a_end - 1;  // the chunk's other sentences are used again
      } else {
        b = sentences(a_end, last + 1);
      }
      const int64_t whole_tokens = a.size() + (is_random_next ? 0 : b.size());
      truncate(a, b);
      dropped_tokens_ += whole_tokens - a.size() - (is_random_next ? 0 : b.size());
      append_sample(a, b, is_random_next);
      chunk_begin = last + 1;
    }
  }

  /// All samples of one document in one pass: as many of its tokens as fit at a time.
  void cut_blocks(int64_t place) {
    const int64_t most_tokens = options_.max_seq_tokens - 2;  // [CLS], [SEP]
    const Segment document = sentences(first_sentence(place), end_sentence(place));
    for (int64_t begin = document.begin; begin < document.end; begin += most_tokens) {
      tokens_.assign(1, special_.classify);
      append_segment({.begin = begin, .end = std::min(begin + most_tokens, document.end)});
      segment_ids_.assign(tokens_.size(), 0);
      finish_sample(tokens_.size() - 1, 0);
    }
  }

  Segment random_segment(int64_t place, int64_t target_tokens) {
    int64_t other = place;
    for (int64_t tries = 0; tries < kTriesForOtherDocument && other == place; ++tries) {
      other = random_.randint(0, documents_.size() - 1);
    }
    const int64_t begin = first_sentence(other);
    const int64_t end = end_sentence(other);
    const int64_t start = begin + random_.randint(0, end - begin - 1);
    int64_t stop = start + 1;
    while (stop < end && sentences(start, stop).size() < target_tokens) ++stop;
    return sentences(start, stop);
  }

  void truncate(Segment& a, Segment& b) {
    while (a.size() + b.size() > max_tokens_) {
      Segment& longer = a.size() > b.size() ? a : b;
      if (random_.random() < 0.5) {
        ++longer.begin;
      } else {
        --longer.end;
      }
    }
  }

  std::span<const TokenId> tokens_of(Segment segment) const {
    return std::span(documents_.token_ids)
        .subspan(static_cast<size_t>(segment.begin), static_cast<size_t>(segment.size()));
  }

  void append_segment(Segment segment) {
    const std::span<const TokenId> part = tokens_of(segment);
    tokens_.insert(tokens_.end(), part.begin(), part.end());
    tokens_.push_back(special_.separator);
  }

  void append_sample(Segment a, Segment b, bool is_random_next) {
    tokens_.assign(1, special_.classify);
    append_segment(a);
    const size_t a_tokens = tokens_.size();
    append_segment(b);
    segment_ids_.assign(tokens_.size(), 1);
    std::fill_n(segment_ids_.begin(), a_tokens, int8_t{0});
    finish_sample(a_tokens - 1, static_cast<int8_t>(is_random_next));
  }

  /// Masks the tokens under construction, whose first [SEP] is at `separator`.
  void finish_sample(size_t separator, int8_t next_sentence_label) {
    mask_tokens(separator);
    samples_.append(SampleView{.id = samples_.size(),
                               .token_ids = tokens_,
                               .segment_ids = segment_ids_,
                               .masked_positions = masked_positions_,
                               .masked_ids = masked_ids_,
                               .next_sentence_label = next_sentence_label});
  }

  /// Replaces tokens of the sample under construction; `separator` is the place of its first [SEP].
  void mask_tokens(size_t separator) {
    candidates_.clear();
    for (size_t i = 1; i + 1 < tokens_.size(); ++i) {
      if (i != separator) candidates_.push_back(static_cast<int16_t>(i));
    }
    random_.shuffle(std::span(candidates_));
    // nearbyint rounds halves to even, as Python's round does.
    const auto wanted = static_cast<int64_t>(
        std::nearbyint(static_cast<double>(tokens_.size()) * options_.masked_fraction));
    const auto count = std::min({options_.max_masked_per_seq, std::max<int64_t>(1, wanted),
                                 static_cast<int64_t>(candidates_.size())});
    candidates_.resize(static_cast<size_t>(count));
    originals_ = tokens_;
    for (const int16_t position : candidates_) {
      tokens_[static_cast<size_t>(position)] = masked_token(tokens_[static_cast<size_t>(position)]);
    }
    std::ranges::sort(candidates_);
    masked_positions_ = candidates_;
    masked_ids_.clear();
    for (const int16_t position : masked_positions_) {
      masked_ids_.push_back(originals_[static_cast<size_t>(position)]);
    }
  }

  TokenId masked_token(TokenId token) {
    if (random_.random() < 0.8) return special_.mask;
    if (random_.random() < 0.5) return token;
    return static_cast<TokenId>(random_.randint(0, vocab_size_ - 1));
  }

  /// Reserves memory after one pass, whose size predicts the total, to avoid growing by doubling.
  void reserve_for(int64_t passes) {
    const auto expected = [&](int64_t once) { return once * passes + once * passes / 50 + 64; };
    const SampleLength once = samples_.length();
    samples_.reserve({.tokens = expected(once.tokens), .masked = expected(once.masked)});
  }

  const Documents& documents_;
  const SpecialTokens special_;
  const int64_t vocab_size_;
  const GeneratorOptions options_;
  const int64_t max_tokens_;
  PythonRandom random_;
  std::vector<int64_t> document_order_;
  SampleSet samples_;
  int64_t dropped_tokens_ = 0;
  // The sample under construction.
  std::vector<TokenId> tokens_;
  std::vector<TokenId> originals_;
  std::vector<int8_t> segment_ids_;
  std::vector<int16_t> candidates_;
  std::vector<int16_t> masked_positions_;
  std::vector<TokenId> masked_ids_;
};

}  // namespace

void check_options(const GeneratorOptions& options) {
  check_range<int64_t>("--duplication", options.duplication, 1, 1000);
  check_range<int64_t>("--max-seq-tokens", options.max_seq_tokens, kSpecialTokens + 2, 32767);
  check_range<int64_t>("--max-masked-per-seq", options.max_masked_per_seq, 1,
                       options.max_seq_tokens);
  check_range("--masked-fraction", options.masked_fraction, 0.0, 1.0);
  check_range("--short-seq-probability", options.short_seq_probability, 0.0, 1.0);
}

GeneratedSamples generate_samples(const Documents& documents, const Vocabulary& vocabulary,
                                  const GeneratorOptions& options) {
  check_options(options);
  BERTHA_CHECK(documents.size() >= 1, "no documents");
  return Generator(documents, vocabulary, options).run();
}

}  // namespace bertha

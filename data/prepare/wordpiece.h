#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/tokenizer_settings.h"
#include "data/prepare/vocabulary.h"

namespace bertha {

/// BERT tokenizer: basic tokens, then the longest matching wordpiece first, `##` inside words; a
/// word that is too long, or with a part that no wordpiece matches, is [UNK]. By the published
/// rules words have up to 200 characters, and special tokens written in the text are text; by the
/// rules of transformers, which the vocabulary asks for, words have up to 100, and added and
/// special tokens are found in the text.
///
/// Needs     valid UTF-8. The vocabulary must outlive the tokenizer.
/// Threads   one object per thread (it has a cache).
/// Source    BERT tokenization.py as the MLPerf reference has it; transformers, BertTokenizer.
class WordPieceTokenizer {
 public:
  static constexpr int64_t kMaxCharactersPerWord = 200;
  static constexpr int64_t kMaxCharactersOfTransformers = 100;

  explicit WordPieceTokenizer(const Vocabulary& vocabulary, const TokenizerSettings& settings = {});

  /// Appends the ids of one line's wordpieces.
  void append_ids(std::string_view line, std::vector<TokenId>& ids);

 private:
  void append_plain_text(std::string_view text, std::vector<TokenId>& ids);
  void append_word(std::string_view word, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary_;
  TokenizerSettings settings_;
  std::string added_first_bytes_;  // first bytes of the added tokens, in both cases
  // The wordpieces of words that occurred, by their hash: a word replaces another one.
  struct CachedWord {
    std::string text;
    std::vector<TokenId> ids;
  };
  std::vector<CachedWord> cache_;
};

}  // namespace bertha

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/tokenizer_settings.h"
#include "data/prepare/vocabulary.h"

namespace bertha {

/// Remembers the wordpieces of words. Grows to 24 MiB and the words; then it forgets everything.
class WordpieceCache {
 public:
  WordpieceCache();

  /// Whether `word` is known; then `ids` are its wordpieces, valid until the next insert().
  bool find(std::string_view word, std::span<const TokenId>& ids) const;
  void insert(std::string_view word, std::span<const TokenId> ids);

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t text_offset = 0;
    uint32_t ids_offset = 0;
    uint16_t text_bytes = 0;  // 0 = free
    uint16_t num_ids = 0;
  };

  size_t locate(std::string_view word, uint64_t hash) const;
  void make_room();

  std::vector<Slot> slots_;
  std::string texts_;
  std::vector<TokenId> ids_;
  int64_t num_words_ = 0;
};

/// BERT tokenizer: basic tokens, then the longest matching wordpiece first, `##` inside
/// words; a word that is too long, or with a part that no wordpiece matches, is [UNK]. By the
/// published rules words have up to 200 characters, and special tokens written in the text are
/// text; by those of transformers, which the vocabulary asks for, words have up to 100, and added
/// and special tokens are found in the text.
///
/// Needs     valid UTF-8. The vocabulary must outlive the tokenizer.
/// Threads   one object per thread (it has a cache).
/// Source    BERT tokenization.py as the MLPerf reference has it; transformers, BertTokenizer.
class WordPieceTokenizer {
 public:
  static constexpr int64_t kMostCharactersPerWord = 200;
  static constexpr int64_t kMostCharactersOfTransformers = 100;

  explicit WordPieceTokenizer(const Vocabulary& vocabulary, const TokenizerSettings& settings = {});

  /// Appends the ids of one line's wordpieces.
  void append_ids(std::string_view line, std::vector<TokenId>& ids);

 private:
  void append_plain_text(std::string_view text, std::vector<TokenId>& ids);
  void append_word(std::string_view word, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary_;
  TokenizerSettings settings_;
  std::string added_first_bytes_;  // of the added tokens, in both cases
  WordpieceCache cache_;
};

}  // namespace bertha

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/files/tokenizer_settings.h"
#include "data/format/sample.h"
#include "data/prepare/tokenizer_files.h"

namespace bertha {

/// Lets a map of strings be searched by string_view.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// The wordpieces in file order; a wordpiece's id is its line number counted from 0. A line of
/// nothing but white space, such as U+2028, has an id too; no text contains it.
///
/// Errors    Error(kData) naming file and line: missing or unreadable file, invalid UTF-8, an empty
///           line, a wordpiece given twice, more than kMaxVocabEntries wordpieces, a special token
///           missing.
class Vocabulary {
 public:
  /// A file of wordpieces (read_vocab_lines()), or a Hugging Face folder or tokenizer.json
  /// (read_tokenizer_files()).
  static Vocabulary load(const std::string& path);
  /// `origin` is the name that messages use.
  Vocabulary(std::vector<std::string> wordpieces, std::string origin);
  explicit Vocabulary(TokenizerFiles files, TokenizerRules rules = TokenizerRules::kTransformers);

  int64_t size() const { return static_cast<int64_t>(wordpieces_.size()); }
  const std::string& wordpiece(int64_t id) const { return wordpieces_[static_cast<size_t>(id)]; }
  const SpecialTokens& special() const { return special_; }
  int64_t longest_wordpiece_bytes() const { return longest_wordpiece_bytes_; }
  /// The rules of transformers for its folders and files, else the published ones.
  TokenizerRules rules() const { return rules_; }
  /// Tokens that those rules find in the text itself, longer ones first; none if published.
  const std::vector<AddedToken>& added_tokens() const { return added_tokens_; }

  /// The id of a wordpiece at the start of a word, or of `##wordpiece` inside one; -1 when there is
  /// none.
  TokenId find_start(std::string_view wordpiece) const { return find(starts_, wordpiece); }
  TokenId find_continuation(std::string_view wordpiece) const {
    return find(continuations_, wordpiece);
  }

 private:
  using Map = std::unordered_map<std::string, TokenId, StringHash, std::equal_to<>>;

  static TokenId find(const Map& map, std::string_view wordpiece) {
    const auto found = map.find(wordpiece);
    return found == map.end() ? TokenId{-1} : found->second;
  }

  std::vector<std::string> wordpieces_;
  Map starts_;
  Map continuations_;
  SpecialTokens special_;
  int64_t longest_wordpiece_bytes_ = 0;
  TokenizerRules rules_;
  std::vector<AddedToken> added_tokens_;
};

/// SHA-256 of a vocabulary, by which data and model are compared: of the file, or of the file that
/// has the wordpieces of a folder or tokenizer.json line by line.
std::string vocabulary_sha256(const std::string& path);

}  // namespace bertha

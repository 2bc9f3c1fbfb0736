#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/format/sample.h"

namespace bertha {

/// Lets a map of strings be searched by string_view.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

struct SpecialTokens {
  TokenId pad = 0;  // always 0: shards pad with it, and label 0 means "not masked"
  TokenId unknown = 0;
  TokenId classify = 0;
  TokenId separator = 0;
  TokenId mask = 0;
};

/// The wordpieces in file order; a wordpiece's id is its line number counted from 0. A line of
/// nothing but white space, such as U+2028, has an id too; no text contains it.
///
/// Errors    Error(kData) naming file and line: missing or unreadable file, invalid UTF-8, an empty
///           line, a wordpiece given twice, more than 32,768 wordpieces (ids are int16), [PAD] not
///           first, [UNK], [CLS], [SEP] or [MASK] missing.
class Vocabulary {
 public:
  /// One wordpiece per line, lines ended by \n or \r\n; white space around it is removed.
  static Vocabulary load(const std::string& path);
  /// `origin` is the name that messages use.
  Vocabulary(std::vector<std::string> wordpieces, std::string origin);

  int64_t size() const { return static_cast<int64_t>(wordpieces_.size()); }
  const std::string& wordpiece(int64_t id) const { return wordpieces_[static_cast<size_t>(id)]; }
  const SpecialTokens& special() const { return special_; }
  int64_t longest_wordpiece_bytes() const { return longest_wordpiece_bytes_; }

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
};

}  // namespace bertha

#include "data/prepare/wordpiece.h"

#include <algorithm>
#include <functional>

#include "data/prepare/ascii_words.h"
#include "data/prepare/unicode_text.h"

namespace bertha {
namespace {

constexpr size_t kCachedWords = size_t{1} << 16;  // some 5 MiB
constexpr size_t kMaxWordBytes = 128;             // longer ones are rare and not kept

bool is_same(std::string_view text, std::string_view token, bool ignores_case) {
  if (!ignores_case) return text.starts_with(token);
  return text.size() >= token.size() &&
         std::ranges::equal(text.substr(0, token.size()), token, [](char a, char b) {
           return ascii_words::lower(a) == ascii_words::lower(b);
         });
}

/// Whether a byte belongs to a letter or digit, as far as a word's end is concerned.
bool is_of_word(char c) {
  return ascii_words::class_of(c) == ascii_words::kWord || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// The longest added token that the line has at a place; null = none.
const AddedToken* added_token_at(const Vocabulary& vocabulary, const TokenizerSettings& settings,
                                 std::string_view line, size_t at) {
  const std::string_view rest = line.substr(at);
  for (const AddedToken& token : vocabulary.added_tokens()) {
    if (!is_same(rest, token.text, token.normalized && settings.do_lower_case)) continue;
    const size_t end = at + token.text.size();
    const bool is_inside =
        (at > 0 && is_of_word(line[at - 1])) || (end < line.size() && is_of_word(line[end]));
    if (token.single_word && is_inside) continue;
    return &token;
  }
  return nullptr;
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(const Vocabulary& vocabulary,
                                       const TokenizerSettings& settings)
    : vocabulary_(vocabulary), settings_(settings), cache_(kCachedWords) {
  for (const AddedToken& token : vocabulary.added_tokens()) {
    const char first = token.text.front();
    added_first_bytes_ += {first, ascii_words::lower(first), ascii_words::upper(first)};
  }
}

void WordPieceTokenizer::append_ids(std::string_view line, std::vector<TokenId>& ids) {
  size_t at = 0;
  size_t done = 0;  // bytes of the line whose ids have been appended
  while ((at = line.find_first_of(added_first_bytes_, at)) != std::string_view::npos) {
    const AddedToken* const token = added_token_at(vocabulary_, settings_, line, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    append_plain_text(line.substr(done, at - done), ids);
    ids.push_back(token->id);
    at += token->text.size();
    done = at;
  }
  append_plain_text(line.substr(done), ids);
}

void WordPieceTokenizer::append_plain_text(std::string_view text, std::vector<TokenId>& ids) {
  const auto append = [&](std::string_view key, const auto& compute) {
    if (key.size() > kMaxWordBytes) return compute(ids);
    CachedWord& known = cache_[std::hash<std::string_view>()(key) % kCachedWords];
    if (known.text != key) {
      known.text = key;
      known.ids.clear();
      compute(known.ids);
    }
    ids.insert(ids.end(), known.ids.begin(), known.ids.end());
  };
  // A chunk has a byte that no ASCII word has, so both kinds share the cache.
  split_words(
      text, settings_.do_lower_case,
      [&](std::string_view word) { append(word, [&](auto& to) { append_word(word, to); }); },
      [&](std::string_view chunk) {
        append(chunk, [&](auto& to) {
          for (const std::string& word : basic_tokens(chunk, settings_, vocabulary_.rules())) {
            append_word(word, to);
          }
        });
      });
}

void WordPieceTokenizer::append_word(std::string_view word, std::vector<TokenId>& ids) const {
  const int64_t most = vocabulary_.rules() == TokenizerRules::kTransformers
                           ? kMaxCharactersOfTransformers
                           : kMaxCharactersPerWord;
  if (count_characters(word) > most) {
    ids.push_back(vocabulary_.special().unknown);
    return;
  }
  const size_t before = ids.size();
  const auto longest = static_cast<size_t>(vocabulary_.longest_wordpiece_bytes());
  for (size_t start = 0; start < word.size();) {
    size_t end = std::min(word.size(), start + longest);
    TokenId id = -1;
    for (; end > start; --end) {
      if (end < word.size() && !starts_character(word[end])) continue;
      const std::string_view part = word.substr(start, end - start);
      id = start == 0 ? vocabulary_.find_start(part) : vocabulary_.find_continuation(part);
      if (id >= 0) break;
    }
    if (id < 0) {
      ids.resize(before);
      ids.push_back(vocabulary_.special().unknown);
      return;
    }
    ids.push_back(id);
    start = end;
  }
}

}  // namespace bertha

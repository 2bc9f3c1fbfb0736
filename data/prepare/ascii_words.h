#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace bertha {

namespace ascii_words {

enum : uint8_t { kWord = 0, kPunctuation = 1, kOther = 2, kSpace = 4 };

constexpr std::array<uint8_t, 256> make_classes() {
  std::array<uint8_t, 256> classes{};
  for (int c = 0; c < 256; ++c) {
    const bool letter_or_digit =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    uint8_t kind = kOther;
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      kind = kSpace;
    } else if (letter_or_digit) {
      kind = kWord;
    } else if (c > 32 && c < 127) {
      kind = kPunctuation;
    }
    classes[static_cast<size_t>(c)] = kind;
  }
  return classes;
}
inline constexpr std::array<uint8_t, 256> kClasses = make_classes();

inline uint8_t class_of(char c) { return kClasses[static_cast<unsigned char>(c)]; }

inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
inline char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

inline std::string_view lower(std::string_view chunk, std::string& lowered) {
  lowered.resize(chunk.size());
  for (size_t i = 0; i < chunk.size(); ++i) lowered[i] = lower(chunk[i]);
  return lowered;
}

template <class OnToken>
void split_ascii_chunk(std::string_view text, OnToken& on_token) {
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (class_of(text[i]) != kPunctuation) continue;
    if (i > start) on_token(text.substr(start, i - start));
    on_token(text.substr(i, 1));
    start = i + 1;
  }
  if (text.size() > start) on_token(text.substr(start));
}

}  // namespace ascii_words

/// Splits a line into basic tokens where ASCII rules suffice, as nearly everywhere in English text,
/// and otherwise into chunks for basic_tokens(). In the order of the line:
///   on_token(view)   a basic token, lower-cased where `lowers`;
///   on_chunk(view)   raw text between ASCII white space that has other characters or control
///                    characters; split it with basic_tokens().
///
/// Needs     valid UTF-8.
/// Exact     on_token's views and the chunks' tokens together are basic_tokens() of the line.
template <class OnToken, class OnChunk>
void split_words(std::string_view line, bool lowers, OnToken&& on_token, OnChunk&& on_chunk) {
  using namespace ascii_words;
  std::string lowered;
  for (size_t at = 0; at < line.size();) {
    if (class_of(line[at]) == kSpace) {
      ++at;
      continue;
    }
    const size_t start = at;
    uint8_t seen = 0;
    for (; at < line.size(); ++at) {
      const uint8_t kind = class_of(line[at]);
      if (kind == kSpace) break;
      seen |= kind;
    }
    const std::string_view chunk = line.substr(start, at - start);
    if ((seen & kOther) != 0) {
      on_chunk(chunk);
    } else {
      split_ascii_chunk(lowers ? lower(chunk, lowered) : chunk, on_token);
    }
  }
}

}  // namespace bertha

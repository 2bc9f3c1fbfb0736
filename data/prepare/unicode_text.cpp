#include "data/prepare/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {
namespace {

using Text = std::vector<utf8proc_int32_t>;  // code points
using Range = std::pair<utf8proc_int32_t, utf8proc_int32_t>;

bool in_ranges(utf8proc_int32_t c, std::span<const Range> ranges) {
  return std::ranges::any_of(
      ranges, [c](const Range& range) { return c >= range.first && c <= range.second; });
}

/// The character that the text begins with, and its bytes: 0 of an empty text, negative when the
/// text is not UTF-8.
struct Character {
  utf8proc_int32_t code = 0;
  utf8proc_ssize_t size_bytes = 0;
};
Character first_character(std::string_view text) {
  Character first;
  first.size_bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                      static_cast<utf8proc_ssize_t>(text.size()), &first.code);
  return first;
}

/// The category in Unicode 11.0.0, whichever newer version utf8proc has: what has come since is
/// unassigned, what has moved since is where it was.
utf8proc_category_t category_of(utf8proc_int32_t c) {
  if (!is_in_unicode_11(c)) return UTF8PROC_CATEGORY_CN;
  switch (c) {
    case 0x295:
      return UTF8PROC_CATEGORY_LL;
    case 0x166d:
      return UTF8PROC_CATEGORY_PO;
    case 0x1734:
    case 0x1171e:
      return UTF8PROC_CATEGORY_MN;
    case 0xa9bd:
      return UTF8PROC_CATEGORY_MC;
    default:
      return utf8proc_category(c);
  }
}

/// str.isspace().
bool is_python_space(utf8proc_int32_t c) {
  constexpr Range kSpaces[] = {
      {0x09, 0x0d},     {0x1c, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
      {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
  return in_ranges(c, kSpaces);
}

bool is_cjk_ideograph(utf8proc_int32_t c) {
  constexpr Range kIdeographs[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f},
                                   {0x2b820, 0x2ceaf}, {0x2f800, 0x2fa1f}};
  return c >= 0x3400 && in_ranges(c, kIdeographs);
}

bool is_punctuation(utf8proc_int32_t c) {
  // ASCII symbols such as $ and ^ count as punctuation although Unicode calls them symbols.
  if (c < 0x80) {
    return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
           (c >= 123 && c <= 126);
  }
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool is_cased(utf8proc_int32_t c) {
  constexpr Range kOtherCased[] = {{0xaa, 0xaa},      {0xba, 0xba},       {0x2160, 0x217f},
                                   {0x24b6, 0x24e9},  {0x1f130, 0x1f149}, {0x1f150, 0x1f169},
                                   {0x1f170, 0x1f189}};
  const utf8proc_category_t category = category_of(c);
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT || in_ranges(c, kOtherCased);
}

bool is_case_ignorable(utf8proc_int32_t c) {
  // Without U+055F, which became one of them in Unicode 12.
  constexpr Range kWordMiddle[] = {
      {0x27, 0x27},     {0x2e, 0x2e},     {0x3a, 0x3a},     {0xb7, 0xb7},     {0x387, 0x387},
      {0x5f4, 0x5f4},   {0x2018, 0x2019}, {0x2024, 0x2024}, {0x2027, 0x2027}, {0xfe13, 0xfe13},
      {0xfe52, 0xfe52}, {0xfe55, 0xfe55}, {0xff07, 0xff07}, {0xff0e, 0xff0e}, {0xff1a, 0xff1a}};
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return in_ranges(c, kWordMiddle);
  }
}

/// Whether the capital sigma at `at` ends a word: a cased character before it and none after,
/// case-ignorable ones not counted. The one rule of str.lower() that looks at the neighbours.
bool is_final_sigma(const Text& word, size_t at) {
  size_t before = at;
  while (before > 0 && is_case_ignorable(word[before - 1])) --before;
  if (before == 0 || !is_cased(word[before - 1])) return false;
  size_t after = at + 1;
  while (after < word.size() && is_case_ignorable(word[after])) ++after;
  return after == word.size() || !is_cased(word[after]);
}

/// str.lower().
Text lower(const Text& word) {
  constexpr utf8proc_int32_t kCapitalSigma = 0x3a3, kSigma = 0x3c3, kFinalSigma = 0x3c2;
  constexpr utf8proc_int32_t kCapitalDottedI = 0x130, kDotAbove = 0x307;
  Text lowered;
  lowered.reserve(word.size() + 1);
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] == kCapitalSigma) {
      lowered.push_back(is_final_sigma(word, i) ? kFinalSigma : kSigma);
    } else if (word[i] == kCapitalDottedI) {
      lowered.push_back('i');
      lowered.push_back(kDotAbove);
    } else {
      lowered.push_back(is_in_unicode_11(word[i]) ? utf8proc_tolower(word[i]) : word[i]);
    }
  }
  return lowered;
}

void append_utf8(utf8proc_int32_t c, std::string& text) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t count = utf8proc_encode_char(c, bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count));
}

/// The canonical decomposition (NFD) without non-spacing marks; what has come since Unicode 11
/// neither decomposes nor combines. utf8proc's own for texts takes quadratic time for marks in a
/// row.
Text without_accents(const Text& word) {
  constexpr auto kNfd = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
  Text decomposed;
  for (const utf8proc_int32_t c : word) {
    std::array<utf8proc_int32_t, 32> parts{c};
    utf8proc_ssize_t count = 1;
    int boundary = 0;
    if (is_in_unicode_11(c)) {
      count = utf8proc_decompose_char(c, parts.data(), parts.size(), kNfd, &boundary);
    }
    BERTHA_CHECK(count >= 0 && count <= std::ssize(parts), utf8proc_errmsg(count));
    decomposed.insert(decomposed.end(), parts.begin(), parts.begin() + count);
  }
  const auto combining_class = [](utf8proc_int32_t c) {
    return is_in_unicode_11(c) ? utf8proc_get_property(c)->combining_class : 0;
  };
  const auto combines = [&](utf8proc_int32_t c) { return combining_class(c) != 0; };
  for (auto begin = decomposed.begin(); begin != decomposed.end();) {
    begin = std::find_if(begin, decomposed.end(), combines);
    const auto end = std::find_if_not(begin, decomposed.end(), combines);
    std::ranges::stable_sort(begin, end, {}, combining_class);
    begin = end;
  }
  std::erase_if(decomposed, [](utf8proc_int32_t c) {
    return c >= 0x300 && category_of(c) == UTF8PROC_CATEGORY_MN;
  });
  return decomposed;
}

void split_at_punctuation(const Text& word, std::vector<std::string>& tokens) {
  bool inside_word = false;
  for (const utf8proc_int32_t c : word) {
    const bool alone = is_punctuation(c);
    if (alone || !inside_word) tokens.emplace_back();
    append_utf8(c, tokens.back());
    inside_word = !alone;
  }
}

/// Removed characters give nothing, white space gives a space, the rest itself.
std::optional<utf8proc_int32_t> cleaned(utf8proc_int32_t c, TokenizerRules rules) {
  if (c == '\t' || c == '\n' || c == '\r') return ' ';
  if (c == 0 || c == 0xfffd) return std::nullopt;
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
      return std::nullopt;
    case UTF8PROC_CATEGORY_CO:
      if (rules == TokenizerRules::kTransformers) return std::nullopt;
      return c;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:  // kept by the cleaning, but str.split() splits there
    case UTF8PROC_CATEGORY_ZP:
      return ' ';
    default:
      return c;
  }
}

}  // namespace

std::optional<int64_t> first_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8) {
      uint64_t eight = 0;
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const utf8proc_ssize_t size_bytes = first_character(text.substr(at)).size_bytes;
    if (size_bytes < 0) return static_cast<int64_t>(at);
    at += static_cast<size_t>(size_bytes);
  }
  return std::nullopt;
}

std::string_view strip(std::string_view text) {
  const auto starts_with_space = [](std::string_view part) {
    const Character first = first_character(part);
    return first.size_bytes > 0 && is_python_space(first.code);
  };
  while (starts_with_space(text)) {
    text.remove_prefix(static_cast<size_t>(first_character(text).size_bytes));
  }
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && !starts_character(text[start])) --start;
    if (!starts_with_space(text.substr(start))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::vector<std::string> basic_tokens(std::string_view text, const TokenizerSettings& settings,
                                      TokenizerRules rules) {
  std::vector<std::string> tokens;
  Text word;
  const auto end_word = [&] {
    if (settings.do_lower_case) word = lower(word);
    if (settings.strip_accents) word = without_accents(word);
    split_at_punctuation(word, tokens);
    word.clear();
  };
  while (!text.empty()) {
    const Character first = first_character(text);
    BERTHA_CHECK(first.size_bytes > 0, "text is not UTF-8");
    text.remove_prefix(static_cast<size_t>(first.size_bytes));
    const std::optional<utf8proc_int32_t> c = cleaned(first.code, rules);
    if (!c) continue;
    const bool stands_alone = settings.tokenize_chinese_chars && is_cjk_ideograph(*c);
    if (*c == ' ' || stands_alone) end_word();
    if (*c != ' ') word.push_back(*c);
    if (stands_alone) end_word();
  }
  end_word();
  return tokens;
}

bool starts_lower_case(std::string_view text) {
  const Character first = first_character(text);
  return first.size_bytes > 0 && category_of(first.code) == UTF8PROC_CATEGORY_LL;
}

int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, starts_character);
}

std::string unicode_version() { return "11.0.0"; }

}  // namespace bertha

#include "data/prepare/unicode_text.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "data/prepare/ascii_words.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

using Text = std::vector<UChar32>;  // code points
using Range = std::pair<UChar32, UChar32>;

bool in_ranges(UChar32 c, std::span<const Range> ranges) {
  return std::ranges::any_of(
      ranges, [c](const Range& range) { return c >= range.first && c <= range.second; });
}

/// Removes the first character of the text and returns it; negative if the text is not UTF-8.
UChar32 next_character(std::string_view& text) {
  const auto most_bytes = static_cast<int32_t>(std::min<size_t>(text.size(), U8_MAX_LENGTH));
  UChar32 c = U_SENTINEL;
  int32_t size_bytes = 0;
  if (most_bytes > 0) U8_NEXT(text.data(), size_bytes, most_bytes, c);
  text.remove_prefix(static_cast<size_t>(size_bytes));
  return c;
}

/// Whether Unicode 11.0.0 assigns a character to this code point; surrogates and private use count.
bool is_in_unicode_11(UChar32 c) {
  UVersionInfo age{};
  u_charAge(c, age);
  return age[0] <= 11 && u_charType(c) != U_UNASSIGNED;
}

/// The bit of the category in Unicode 11.0.0, whichever newer version ICU has: later characters are
/// unassigned, characters that changed category have their old one.
uint32_t category_of(UChar32 c) {
  if (!is_in_unicode_11(c)) return U_GC_CN_MASK;
  switch (c) {
    case 0x295:
      return U_GC_LL_MASK;
    case 0x166d:
      return U_GC_PO_MASK;
    case 0x1734:
    case 0x1171e:
      return U_GC_MN_MASK;
    case 0xa9bd:
      return U_GC_MC_MASK;
    default:
      return U_GET_GC_MASK(c);
  }
}

/// str.isspace().
bool is_python_space(UChar32 c) { return u_isUWhiteSpace(c) || (c >= 0x1c && c <= 0x1f); }

bool is_cjk_ideograph(UChar32 c) {
  constexpr Range kIdeographs[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f},
                                   {0x2b820, 0x2ceaf}, {0x2f800, 0x2fa1f}};
  return c >= 0x3400 && in_ranges(c, kIdeographs);
}

bool is_punctuation(UChar32 c) {
  // ASCII symbols such as $ and ^ count as punctuation although Unicode calls them symbols.
  if (c < 0x80) return ascii_words::class_of(static_cast<char>(c)) == ascii_words::kPunctuation;
  return (category_of(c) & U_GC_P_MASK) != 0;
}

bool is_cased(UChar32 c) {
  constexpr Range kOtherCased[] = {{0xaa, 0xaa},      {0xba, 0xba},       {0x2160, 0x217f},
                                   {0x24b6, 0x24e9},  {0x1f130, 0x1f149}, {0x1f150, 0x1f169},
                                   {0x1f170, 0x1f189}};
  return (category_of(c) & U_GC_LC_MASK) != 0 || in_ranges(c, kOtherCased);
}

bool is_case_ignorable(UChar32 c) {
  // U+055F is left out: it became one of them in Unicode 12.
  constexpr Range kWordMiddle[] = {
      {0x27, 0x27},     {0x2e, 0x2e},     {0x3a, 0x3a},     {0xb7, 0xb7},     {0x387, 0x387},
      {0x5f4, 0x5f4},   {0x2018, 0x2019}, {0x2024, 0x2024}, {0x2027, 0x2027}, {0xfe13, 0xfe13},
      {0xfe52, 0xfe52}, {0xfe55, 0xfe55}, {0xff07, 0xff07}, {0xff0e, 0xff0e}, {0xff1a, 0xff1a}};
  constexpr uint32_t kIgnorable =
      U_GC_MN_MASK | U_GC_ME_MASK | U_GC_CF_MASK | U_GC_LM_MASK | U_GC_SK_MASK;
  return (category_of(c) & kIgnorable) != 0 || in_ranges(c, kWordMiddle);
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
  constexpr UChar32 kCapitalSigma = 0x3a3, kSigma = 0x3c3, kFinalSigma = 0x3c2;
  constexpr UChar32 kCapitalDottedI = 0x130, kDotAbove = 0x307;
  Text lowered;
  lowered.reserve(word.size() + 1);
  for (size_t i = 0; i < word.size(); ++i) {
    if (word[i] == kCapitalSigma) {
      lowered.push_back(is_final_sigma(word, i) ? kFinalSigma : kSigma);
    } else if (word[i] == kCapitalDottedI) {
      lowered.push_back('i');
      lowered.push_back(kDotAbove);
    } else {
      lowered.push_back(is_in_unicode_11(word[i]) ? u_tolower(word[i]) : word[i]);
    }
  }
  return lowered;
}

/// The canonical decomposition (NFD) without non-spacing marks; characters newer than Unicode 11
/// neither decompose nor combine. ICU's function for texts takes quadratic time for series of
/// marks.
Text without_accents(const Text& word) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* const nfd = icu::Normalizer2::getNFDInstance(error);
  BERTHA_CHECK(U_SUCCESS(error), u_errorName(error));
  Text decomposed;
  for (const UChar32 c : word) {
    icu::UnicodeString parts(c);
    if (is_in_unicode_11(c)) nfd->getDecomposition(c, parts);
    for (int32_t at = 0; at < parts.length(); at = parts.moveIndex32(at, 1)) {
      decomposed.push_back(parts.char32At(at));
    }
  }
  const auto combining_class = [](UChar32 c) {
    return is_in_unicode_11(c) ? u_getCombiningClass(c) : 0;
  };
  const auto combines = [&](UChar32 c) { return combining_class(c) != 0; };
  for (auto begin = decomposed.begin(); begin != decomposed.end();) {
    begin = std::find_if(begin, decomposed.end(), combines);
    const auto end = std::find_if_not(begin, decomposed.end(), combines);
    std::ranges::stable_sort(begin, end, {}, combining_class);
    begin = end;
  }
  std::erase_if(decomposed, [](UChar32 c) { return c >= 0x300 && category_of(c) == U_GC_MN_MASK; });
  return decomposed;
}

void split_at_punctuation(const Text& word, std::vector<std::string>& tokens) {
  bool inside_word = false;
  for (const UChar32 c : word) {
    const bool alone = is_punctuation(c);
    if (alone || !inside_word) tokens.emplace_back();
    std::array<char, U8_MAX_LENGTH> bytes{};
    size_t size_bytes = 0;
    U8_APPEND_UNSAFE(bytes, size_bytes, c);
    tokens.back().append(bytes.data(), size_bytes);
    inside_word = !alone;
  }
}

/// Removed characters give nothing, white space gives a space, other characters are unchanged.
std::optional<UChar32> cleaned(UChar32 c, TokenizerRules rules) {
  if (c == '\t' || c == '\n' || c == '\r') return ' ';
  const uint32_t category = category_of(c);
  const uint32_t removed =
      U_GC_CC_MASK | U_GC_CF_MASK | (rules == TokenizerRules::kTransformers ? U_GC_CO_MASK : 0);
  if (c == 0xfffd || (category & removed) != 0) return std::nullopt;
  // The cleaning keeps line and paragraph separators, but str.split() splits there.
  return (category & U_GC_Z_MASK) != 0 ? ' ' : c;
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
    std::string_view rest = text.substr(at);
    if (next_character(rest) < 0) return static_cast<int64_t>(at);
    at = text.size() - rest.size();
  }
  return std::nullopt;
}

std::string_view strip(std::string_view text) {
  for (std::string_view rest = text; is_python_space(next_character(rest));) text = rest;
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && !starts_character(text[start])) --start;
    std::string_view last = text.substr(start);
    if (!is_python_space(next_character(last))) break;
    text = text.substr(0, start);
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
    const UChar32 first = next_character(text);
    BERTHA_CHECK(first >= 0, "text is not UTF-8");
    const std::optional<UChar32> c = cleaned(first, rules);
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
  return category_of(next_character(text)) == U_GC_LL_MASK;
}

int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, starts_character);
}

std::string unicode_version() { return "11.0.0"; }

}  // namespace bertha

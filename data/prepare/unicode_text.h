#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/tokenizer_settings.h"

namespace bertha {

/// The Unicode rules of BERT's basic tokenizer, on UTF-8.
///
/// Needs     text that first_invalid_utf8() accepts, for every function except that one.
/// Exact     as the str and unicodedata of CPython 3.7, which made the published data: Unicode
///           11.0, also where ICU has newer tables.
/// Source    Devlin et al., BERT, tokenization.py (BasicTokenizer), and the settings that
///           transformers adds. Its BasicTokenizer in Python, not the one in Rust that it uses by
///           default, also composes characters (NFC), which shows where accents are kept.

/// Offset of the first byte that no valid UTF-8 text has there (surrogates and overlong forms are
/// invalid), or nothing.
std::optional<int64_t> first_invalid_utf8(std::string_view text);

/// Python's str.strip().
std::string_view strip(std::string_view text);

/// The basic tokens: \0, U+FFFD and control characters removed (by the rules of transformers those
/// for private use, too), spaces around CJK ideographs
/// (tokenize_chinese_chars), split at white space, lower-cased (do_lower_case), decomposed (NFD)
/// and without non-spacing marks (strip_accents), and every punctuation character a token of its
/// own.
std::vector<std::string> basic_tokens(std::string_view text, const TokenizerSettings& settings = {},
                                      TokenizerRules rules = TokenizerRules::kPublished);

/// Whether a byte is the first of a character.
inline bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

/// Whether the first character is a lower-case letter.
bool starts_lower_case(std::string_view text);

/// Number of characters (code points).
int64_t count_characters(std::string_view text);

/// Version of the Unicode rules, "11.0.0": part of what decides the tokens.
std::string unicode_version();

}  // namespace bertha

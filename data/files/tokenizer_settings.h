#pragma once

#include <cstdint>
#include <string>

namespace bertha {

/// Whose tokenizer splits the text. They differ for words of more than 100 characters, characters
/// for private use, and special or added tokens written in the text.
enum class TokenizerRules : uint8_t { kPublished, kTransformers };

/// What BERT's basic tokenizer does to text, under the names that transformers uses.
struct TokenizerSettings {
  bool do_lower_case = true;
  bool strip_accents = true;  // if a file states null or nothing: equal to do_lower_case
  bool tokenize_chinese_chars = true;

  bool operator==(const TokenizerSettings&) const = default;
};

/// "do_lower_case: true, strip_accents: true, tokenize_chinese_chars: true".
std::string to_text(const TokenizerSettings& settings);

/// Path of tokenizer_config.json in a folder, or next to a file. The file need not exist.
std::string tokenizer_config_path(const std::string& folder_or_file);

/// Reads that file and, for settings that it does not state, tokenizer.json in the same folder.
/// Otherwise the defaults of transformers apply, except for a folder whose vocab.txt has capital
/// letters, which belongs to a cased model. Error(kData) naming the file and the field.
TokenizerSettings read_tokenizer_settings(const std::string& folder_or_file);

/// The text of such a file, for a model of at most max_tokens tokens.
std::string tokenizer_config(const TokenizerSettings& settings, int64_t max_tokens);

}  // namespace bertha

#include "data/files/tokenizer_settings.h"

#include <filesystem>
#include <system_error>

#include "data/files/json_file.h"
#include "data/files/text_file.h"
#include "kernels/base/error.h"

namespace bertha {

namespace fs = std::filesystem;

namespace {

std::string listed(const TokenizerSettings& settings, const char* quote) {
  const auto field = [&](const char* name, bool value) {
    return concat(quote, name, quote, value ? ": true" : ": false");
  };
  return concat(field("do_lower_case", settings.do_lower_case), ", ",
                field("strip_accents", settings.strip_accents), ", ",
                field("tokenize_chinese_chars", settings.tokenize_chinese_chars));
}

}  // namespace

std::string to_text(const TokenizerSettings& settings) { return listed(settings, ""); }

std::string tokenizer_config_path(const std::string& folder_or_file) {
  const fs::path path(folder_or_file);
  std::error_code ignored;  // whoever reads the file reports it
  return ((fs::is_directory(path, ignored) ? path : path.parent_path()) / "tokenizer_config.json")
      .string();
}

TokenizerSettings read_tokenizer_settings(const std::string& folder_or_file) {
  const std::string path = tokenizer_config_path(folder_or_file);
  if (std::error_code ignored; !fs::exists(path, ignored)) return {};
  try {
    const nlohmann::json root = parse_json(read_text_file(path));
    const JsonField file(path, root);
    if (!root.is_object()) file.wrong("an object");
    const auto stated = [&](const char* key, bool otherwise) {
      if (!root.contains(key)) return otherwise;
      if (!root[key].is_boolean()) file[key].wrong("true or false");
      return root[key].get<bool>();
    };
    const bool lowers = stated("do_lower_case", true);
    const bool follows = root.contains("strip_accents") && root["strip_accents"].is_null();
    return {.do_lower_case = lowers,
            .strip_accents = follows ? lowers : stated("strip_accents", lowers),
            .tokenize_chinese_chars = stated("tokenize_chinese_chars", true)};
  } catch (const JsonError& error) {
    fail(ExitCode::kData, path, ": not valid JSON (", error.what(), "); correct it");
  }
}

std::string tokenizer_config(const TokenizerSettings& settings, int64_t max_tokens) {
  return concat("{", listed(settings, "\""), ", \"model_max_length\": ", max_tokens,
                ", \"tokenizer_class\": \"BertTokenizer\"}\n");
}

}  // namespace bertha

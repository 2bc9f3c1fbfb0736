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

/// Whether a vocabulary has wordpieces that lower-cased text cannot have; [UNK] and its like do not
/// count.
bool has_capitals(const std::string& vocabulary) {
  bool is_special = false;
  bool begins = true;
  for (const char c : vocabulary) {
    if (begins) is_special = c == '[' || c == '<';
    if (!is_special && c >= 'A' && c <= 'Z') return true;
    begins = c == '\n';
  }
  return false;
}

/// The names of the three settings in one of the files.
struct Names {
  const char* lowers;
  const char* strips;
  const char* chinese;
};

/// The settings that a JSON file states, in the object `part` if given; `otherwise`: values of
/// settings that it does not state.
TokenizerSettings stated_settings(const std::string& path, const std::string& part,
                                  const Names& names, const TokenizerSettings& otherwise) {
  try {
    const nlohmann::json root = parse_json(read_text_file(path));
    const JsonField whole(path, root);
    if (!root.is_object()) whole.wrong("an object");
    if (!part.empty() && (!root.contains(part) || !root[part].is_object())) return otherwise;
    const JsonField file = part.empty() ? whole : whole[part.c_str()];
    const nlohmann::json& object = part.empty() ? root : root[part];
    const auto stated = [&](const char* key, bool unstated) {
      if (!object.contains(key)) return unstated;
      if (!object[key].is_boolean()) file[key].wrong("true or false");
      return object[key].get<bool>();
    };
    const bool lowers = stated(names.lowers, otherwise.do_lower_case);
    const bool is_null = object.contains(names.strips) && object[names.strips].is_null();
    const bool follows = is_null || object.contains(names.lowers);
    return {.do_lower_case = lowers,
            .strip_accents =
                is_null ? lowers : stated(names.strips, follows ? lowers : otherwise.strip_accents),
            .tokenize_chinese_chars = stated(names.chinese, otherwise.tokenize_chinese_chars)};
  } catch (const JsonError& error) {
    fail(ExitCode::kData, path, ": not valid JSON (", error.what(), "); correct it");
  }
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
  const std::string fast = (fs::path(path).parent_path() / "tokenizer.json").string();
  TokenizerSettings settings;
  std::error_code ignored;  // whoever needs the folder reports it
  const fs::path folder(folder_or_file);
  if (fs::is_directory(folder, ignored) && fs::exists(folder / "vocab.txt", ignored) &&
      has_capitals(read_text_file((folder / "vocab.txt").string()))) {
    settings = {.do_lower_case = false, .strip_accents = false};
  }
  if (fs::exists(fast, ignored)) {
    settings = stated_settings(fast, "normalizer",
                               {"lowercase", "strip_accents", "handle_chinese_chars"}, settings);
  }
  if (!fs::exists(path, ignored)) return settings;
  return stated_settings(path, "", {"do_lower_case", "strip_accents", "tokenize_chinese_chars"},
                         settings);
}

std::string tokenizer_config(const TokenizerSettings& settings, int64_t max_tokens) {
  return concat("{", listed(settings, "\""), ", \"model_max_length\": ", max_tokens,
                ", \"tokenizer_class\": \"BertTokenizer\"}\n");
}

}  // namespace bertha

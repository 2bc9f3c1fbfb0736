#include "data/prepare/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

#include "data/files/json_file.h"
#include "data/files/new_file.h"
#include "data/prepare/part_reader.h"
#include "data/prepare/unicode_text.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kMaxIds = 1 << 20;  // far above every BERT vocabulary

// The fields that name the special tokens, in the order of TokenizerFiles::special.
constexpr std::array kSpecialFields = {"pad_token", "unk_token", "cls_token", "sep_token",
                                       "mask_token"};

/// Calls `use` with the JSON of a file of the folder, if the file exists.
template <class Use>
void with_json(const fs::path& path, const Use& use) {
  if (!fs::exists(path)) return;
  const std::string name = path.string();
  try {
    const Json root = parse_json(read_text_file(name));
    use(root, JsonField(name, root));
  } catch (const Json::exception& error) {
    fail(ExitCode::kData, name, ": does not have the format of transformers (", error.what(),
         "); save the tokenizer again");
  }
}

/// A token is written as its text or as an object with the field "content".
std::string text_of(const Json& token) {
  return token.is_object()   ? token.value("content", "")
         : token.is_string() ? token.get<std::string>()
                             : "";
}

AddedToken added_token(const Json& token, int64_t id) {
  const bool is_special = token.value("special", false);
  return {.text = token.value("content", ""),
          .id = static_cast<TokenId>(id),
          .single_word = token.value("single_word", false),
          .normalized = token.value("normalized", !is_special)};
}

class FilesReader {
 public:
  explicit FilesReader(const fs::path& folder) : folder_(folder) {}

  TokenizerFiles read() {
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
      with_json(folder_ / name, [&](const Json& root, const JsonField&) { read_names(root); });
    }
    const fs::path fast = folder_ / "tokenizer.json";
    files_.path = (fs::exists(fast) ? fast : folder_ / "vocab.txt").string();
    if (fs::exists(fast)) {
      with_json(fast, [&](const Json& root, const JsonField& file) { read_fast(root, file); });
    } else if (fs::exists(files_.path)) {
      files_.wordpieces = read_vocab_lines(files_.path);
      read_added();
    } else {
      fail(ExitCode::kData, folder_.string(),
           ": has neither vocab.txt nor tokenizer.json, which are needed to tokenize text for this "
           "model; copy them from the source of the model");
    }
    for (size_t id = 0; id < files_.wordpieces.size(); ++id) {
      if (files_.wordpieces[id].empty()) files_.wordpieces[id] = concat("[no token ", id, "]");
    }
    add_special();
    return std::move(files_);
  }

 private:
  void read_names(const Json& root) {
    for (size_t i = 0; i < kSpecialFields.size(); ++i) {
      if (!root.contains(kSpecialFields[i])) continue;
      const std::string text = text_of(root[kSpecialFields[i]]);
      if (!text.empty()) files_.special[i] = text;
    }
  }

  /// Returns whether the id had that text before.
  bool place(const JsonField& where, const std::string& text, int64_t id) {
    const auto at = static_cast<size_t>(id);
    if (at >= files_.wordpieces.size()) files_.wordpieces.resize(at + 1);
    std::string& held = files_.wordpieces[at];
    if (!held.empty() && held != text) where.wrong(concat("another id: \"", held, "\" has ", id));
    const bool is_known = !held.empty();
    held = text;
    return is_known;
  }

  void add(const AddedToken& token, bool is_wordpiece) {
    std::erase_if(files_.added, [&](const AddedToken& old) { return old.id == token.id; });
    files_.added.push_back(token);
    files_.added.back().is_wordpiece = is_wordpiece;
  }

  void read_fast(const Json& root, const JsonField& file) {
    const auto expect = [&](const char* part, const char* type) {
      if (file[part].contains("type") && root[part]["type"] == type) return;
      file[part].wrong(concat("one of type ", type,
                              ", as in BERT's tokenizer; tokenize text with another tokenizer "
                              "first and give its ids (--ids)"));
    };
    expect("model", "WordPiece");
    expect("normalizer", "BertNormalizer");
    const JsonField model = file["model"];
    if (root["model"].value("continuing_subword_prefix", "##") != "##") {
      model["continuing_subword_prefix"].wrong("##");
    }
    model["vocab"].for_each_key([&](const std::string& text, const JsonField& id) {
      place(id, text, id.integer(0, kMaxIds));
    });
    if (!root.contains("added_tokens")) return;
    size_t next = 0;
    file["added_tokens"].for_each([&](const JsonField& token) {
      const int64_t id = token["id"].integer(0, kMaxIds);
      const bool is_known = place(token, token["content"].text(), id);
      add(added_token(root["added_tokens"][next++], id), is_known);
    });
  }

  /// Tokens that are not in vocab.txt, by the file of either age.
  void read_added() {
    with_json(folder_ / "added_tokens.json", [&](const Json&, const JsonField& file) {
      file.for_each_key([&](const std::string& text, const JsonField& number) {
        const int64_t id = number.integer(0, kMaxIds);
        const bool is_known = place(number, text, id);
        add({.text = text, .id = static_cast<TokenId>(id), .normalized = true}, is_known);
      });
    });
    with_json(folder_ / "tokenizer_config.json", [&](const Json& root, const JsonField& file) {
      if (!root.contains("added_tokens_decoder")) return;
      file["added_tokens_decoder"].for_each_key(
          [&](const std::string& key, const JsonField& token) {
            const std::optional<int64_t> id = id_of(key);
            if (!id) token.wrong(concat("an id from 0 to ", kMaxIds, " as its name"));
            const auto is_same = [&](const AddedToken& old) { return old.id == *id; };
            const auto old = std::ranges::find_if(files_.added, is_same);
            const bool was_added = old != files_.added.end() && !old->is_wordpiece;
            const bool is_known = place(token, token["content"].text(), *id) && !was_added;
            add(added_token(root["added_tokens_decoder"][key], *id), is_known);
          });
    });
  }

  static std::optional<int64_t> id_of(const std::string& key) {
    if (key.empty() || key.size() > 7 || !std::ranges::all_of(key, is_digit)) return std::nullopt;
    const int64_t id = std::stoll(key);
    return id <= kMaxIds ? std::optional(id) : std::nullopt;
  }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  /// Special tokens are found in the text although no file lists them among the added ones.
  void add_special() {
    for (const std::string& text : files_.special) {
      const auto listed = [&](const AddedToken& token) { return token.text == text; };
      if (std::ranges::any_of(files_.added, listed)) continue;
      const auto found = std::ranges::find(files_.wordpieces, text);
      if (found == files_.wordpieces.end()) continue;  // whoever needs it reports it
      add({.text = text, .id = static_cast<TokenId>(found - files_.wordpieces.begin())}, true);
    }
    // Among tokens that begin at the same place, the longest is found.
    std::ranges::stable_sort(files_.added, [](const AddedToken& a, const AddedToken& b) {
      return a.text.size() > b.text.size();
    });
    std::erase_if(files_.added, [](const AddedToken& token) { return token.text.empty(); });
  }

  fs::path folder_;
  TokenizerFiles files_;
};

}  // namespace

TokenizerFiles read_tokenizer_files(const std::string& folder_or_json) {
  const fs::path path(folder_or_json);
  if (!fs::exists(path)) fail(ExitCode::kData, folder_or_json, ": no such file or folder");
  return FilesReader(fs::is_directory(path) ? path : path.parent_path()).read();
}

bool has_tokenizer_files(const std::string& folder) {
  const fs::path path(folder);
  return fs::exists(path / "vocab.txt") || fs::exists(path / "tokenizer.json");
}

void copy_tokenizer_files(const std::string& from, const std::string& to) {
  const auto copy = [&](const fs::path& name) {
    const fs::path source = fs::path(from) / name;
    if (!fs::exists(source)) return;
    fs::create_directories((fs::path(to) / name).parent_path());
    write_new_file((fs::path(to) / name).string(), read_text_file(source.string()));
  };
  for (const char* name : {"vocab.txt", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json", "added_tokens.json", "modules.json",
                           "sentence_bert_config.json", "config_sentence_transformers.json"}) {
    copy(name);
  }
  with_json(fs::path(from) / "modules.json", [&](const Json&, const JsonField& file) {
    file.for_each([&](const JsonField& module) {
      const fs::path folder = module["path"].text();
      if (folder.empty() || folder != folder.filename()) return;  // the encoder itself
      for (const char* name : {"config.json", "model.safetensors"}) copy(folder / name);
    });
  });
}

std::vector<std::string> read_vocab_lines(const std::string& path) {
  std::vector<std::string> lines;
  LineReader reader(path);
  while (const std::optional<std::string_view> line = reader.next()) {
    const std::string_view text = strip(*line);
    lines.emplace_back(text.empty() ? *line : text);
  }
  return lines;
}

}  // namespace bertha

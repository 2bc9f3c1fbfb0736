#include "harness/config/load.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <ranges>
#include <sstream>
#include <system_error>

#include "harness/config/check.h"
#include "harness/config/keys.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxIncludeDepth = 16;
constexpr int kMaxFiles = 256;  // each counts as often as it is read
constexpr size_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxListedErrors = 50;

std::string quoted_kind(const YAML::Node& node) {
  if (node.IsMap()) return "a section";
  if (node.IsSequence()) return "a list";
  return "nothing";
}

// ":line:column" of the first line that starts with a tab, else "".
std::string tab_in_front(const std::string& text) {
  std::istringstream lines(text);
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t tab = line.find_first_not_of(' ');
    if (tab < line.size() && line[tab] == '\t') return concat(':', number, ':', tab + 1);
  }
  return "";
}

// ":LINE:1" of the first line of a second document, else "". YAML::LoadAll never returns for some
// texts, such as one that begins with a comma.
std::string second_document(const std::string& text) {
  std::istringstream lines(text);
  int64_t number = 0;
  bool is_behind_one = false, has_content = false;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string mark = line.substr(0, 3);
    const bool is_mark = (mark == "---" || mark == "...") &&
                         (line.size() == 3 || line.find_first_of(" \t\r", 3) == 3);
    if (is_mark) is_behind_one = is_behind_one || has_content;
    const size_t first = line.find_first_not_of(" \t\r", is_mark ? 3 : 0);
    if (first == std::string::npos || line[first] == '#' || line[0] == '%') continue;
    if (is_behind_one) return concat(':', number, ":1");
    has_content = true;
  }
  return "";
}

// Replaces messages of yaml-cpp that name its internals.
std::string in_words(const std::string& message) {
  constexpr const char* kUnaligned = "inconsistent indentation within a section; align its keys";
  static const std::map<std::string, std::string> kWords{
      {"end of map flow not found", "a { has no }"},
      {"end of sequence flow not found", "a [ has no ]"},
      {"illegal flow end", "a } or ] does not match an opening bracket"},
      {"end of map not found", kUnaligned},
      {"end of sequence not found", kUnaligned},
      {"illegal map value",
       "a second colon in a value, or a key that is indented deeper than the "
       "one above; quote the value or align the keys"},
      {"unknown token", "a value cannot begin with this character; quote the value"}};
  const auto found = kWords.find(message);
  return found == kWords.end() ? message : found->second;
}

// Whether the quote at `from` is closed; if not, yaml-cpp reads to the end of the file.
bool is_closed(const std::string& text, size_t from) {
  const char quote = from < text.size() ? text[from] : ' ';
  if (quote != '"' && quote != '\'') return true;
  for (size_t i = from + 1; i < text.size(); ++i) {
    const bool escapes = quote == '"' ? text[i] == '\\' : text.compare(i, 2, "''") == 0;
    if (escapes) {
      ++i;
    } else if (text[i] == quote) {
      return true;
    }
  }
  return false;
}

// Whether a message may print the text: a file that is not a configuration may contain secrets.
bool is_name(const std::string& key) {
  constexpr const char* kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-. ";
  return key.size() <= kMaxQuotedBytes && key.find_first_not_of(kLetters) == std::string::npos;
}

class Loader {
 public:
  explicit Loader(bool warns) : warns_(warns) {}
  void load_file(const std::string& path, const std::string& asked_at);
  void load_text(const std::string& text, const std::string& path);
  void apply(const Override& given);
  LoadedConfig finish();

 private:
  struct File {
    std::string path;
    const std::string& text;
    std::map<std::string, std::string> seen;  // key path -> place
    std::map<std::string, int64_t> repeats;   // key path -> number of repetitions
  };

  static std::string place(const File& file, const YAML::Mark& mark) {
    return concat(file.path, ':', mark.line + 1, ':', mark.column + 1);
  }
  void report(const std::string& where, const std::string& what) {
    errors_.push_back(where + ": " + what);
  }
  bool open(const std::string& path, const std::string& asked_at);
  void read(const std::string& path, const std::string& asked_at);
  void read_includes(const File& file, const YAML::Node& include);
  void read_map(File& file, const YAML::Node& map, const std::string& prefix);
  void read_value(const std::string& where, const Key& key, const YAML::Node& value);
  bool is_retired(const std::string& where, const std::string& path, const std::string& value);
  void refuse_key(const std::string& where, const std::string& path);
  void refuse_value(const std::string& where, const Key& key, const std::string& wrong);
  void report_contradictions();

  bool warns_;
  LoadedConfig loaded_;
  std::vector<std::string> errors_;
  std::vector<std::string> refused_;  // keys with an error in their value or name
  std::vector<fs::path> open_files_;
  int files_ = 0;
};

// Refuses cycles of includes, includes that are nested too deeply, and files without end.
bool Loader::open(const std::string& path, const std::string& asked_at) {
  std::error_code error;
  fs::path canonical = fs::weakly_canonical(path, error);
  if (error) canonical = path;  // reading it reports the error
  if (std::ranges::find(open_files_, canonical) != open_files_.end()) {
    report(asked_at, concat("include: ", path, " is already being read; remove this include"));
    return false;
  }
  if (open_files_.size() >= kMaxIncludeDepth) {
    report(asked_at, concat("include: ", path, " is more than ", kMaxIncludeDepth,
                            " files deep; include fewer levels"));
    return false;
  }
  if (++files_ > kMaxFiles) {
    if (files_ == kMaxFiles + 1) {
      report(asked_at, concat("include: ", path, " is one of more than ", kMaxFiles,
                              " files; include fewer"));
    }
    return false;
  }
  open_files_.push_back(canonical);
  return true;
}

void Loader::load_file(const std::string& path, const std::string& asked_at) {
  if (!open(path, asked_at)) return;
  read(path, asked_at);
  open_files_.pop_back();
}

void Loader::read(const std::string& path, const std::string& asked_at) {
  const std::string from = asked_at.empty() ? "" : asked_at + ": include: ";
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    std::error_code unknown;
    const std::string why = fs::is_directory(path, unknown) ? "is a folder"
                            : error && error != std::errc::no_such_file_or_directory
                                ? error.message()
                            : fs::exists(path, unknown) ? "is a device or a pipe"
                                                        : "no such file";
    errors_.push_back(from + path + ": " + why + "; give the path of a YAML file");
    return;
  }
  if (path.ends_with(".sh")) {
    errors_.push_back(from + path +
                      ": is a shell script, want YAML; source a published config_*.sh before "
                      "launch/run_and_time.sh, which reads its variables");
    return;
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  stream.read(text.data(), std::ssize(text));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kMaxFileBytes) {
    errors_.push_back(concat(from, path, ": has more than ", kMaxFileBytes,
                             " bytes; give the path of a YAML file"));
    return;
  }
  if (stream.bad() || !stream.eof()) {
    errors_.push_back(from + path + ": cannot be read; check its permissions and the disk");
    return;
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // not in yaml-cpp's columns
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  load_text(text, path);
}

void Loader::load_text(const std::string& text, const std::string& path) {
  File file{.path = path, .text = text, .seen = {}, .repeats = {}};
  try {
    const YAML::Node root = YAML::Load(text);
    if (const std::string second = second_document(text); !second.empty()) {
      report(path + second,
             "a second YAML document begins here, want one; remove the line --- or ... before it");
      return;
    }
    if (root.IsNull()) {
      report(path, "is empty, want sections such as train: and model:");
    } else if (!root.IsMap()) {
      report(place(file, root.Mark()),
             "found " + std::string(root.IsScalar() ? "a text" : quoted_kind(root)) +
                 ", want sections such as train: and model:");
    } else {
      read_map(file, root, "");
    }
  } catch (const YAML::Exception& error) {
    const std::string tab = tab_in_front(text);
    report(tab.empty() ? place(file, error.mark) : path + tab,
           "not YAML: " + (tab.empty() ? in_words(error.msg)
                                       : "this line is indented with a tab; use spaces"));
  }
}

void Loader::read_includes(const File& file, const YAML::Node& include) {
  const std::string where = place(file, include.Mark());
  std::vector<YAML::Node> entries;
  if (include.IsSequence()) {
    for (const YAML::Node& entry : include) entries.push_back(entry);
  } else {
    entries.push_back(include);
  }
  for (const YAML::Node& entry : entries) {
    if (!entry.IsScalar() || entry.Scalar().empty()) {
      report(where, "include: found " + quoted_kind(entry) + ", want the path of a file");
      continue;
    }
    const fs::path path = fs::path(file.path).parent_path() / entry.Scalar();
    load_file(path.lexically_normal().string(), place(file, entry.Mark()));
  }
}

void Loader::read_map(File& file, const YAML::Node& map, const std::string& prefix) {
  // Included values come first, wherever the include is written, so this file's own values win.
  if (prefix.empty()) {
    for (const auto& entry : map) {
      if (entry.first.IsScalar() && entry.first.Scalar() == "include") {
        read_includes(file, entry.second);
      }
    }
  }
  for (const auto& entry : map) {
    const std::string where = place(file, entry.first.Mark());
    if (!entry.first.IsScalar()) {
      report(where, "found " + quoted_kind(entry.first) + " as a key, want a name");
      continue;
    }
    if (!is_name(entry.first.Scalar())) {
      report(where, "is not the name of a key, want sections such as train: and model:");
      return;
    }
    const std::string path = prefix + entry.first.Scalar();
    const auto [first, fresh] = file.seen.emplace(path, where);
    if (!fresh) {
      if (++file.repeats[path] > 1) continue;
      report(where, concat(path, ": given twice, first at ", first->second, "; keep one"));
      continue;
    }
    if (path == "include") continue;
    const Key* const key = find_key(path);
    const bool section = std::any_of(
        config_keys().begin(), config_keys().end(),
        [&](const Key& known) { return known.path.substr(0, path.size() + 1) == path + "."; });
    if (key != nullptr) {
      const YAML::Mark value = entry.second.Mark();
      if (entry.second.IsScalar() && !is_closed(file.text, static_cast<size_t>(value.pos))) {
        report(place(file, value), concat(path, ": a quote is not closed; close it"));
      } else {
        read_value(where, *key, entry.second);
      }
    } else if (section && entry.second.IsMap()) {
      read_map(file, entry.second, path + ".");
    } else if (section && !entry.second.IsNull()) {
      report(where, concat(path, ": found ",
                           entry.second.IsScalar() ? '"' + shortened(entry.second.Scalar()) + '"'
                                                   : "a list",
                           ", want a section of lines such as \"seed: 1\", with a space after the "
                           "colon"));
    } else if (!section) {
      const std::string value = entry.second.IsScalar() ? entry.second.Scalar() : "";
      if (!is_retired(where, path, value)) refuse_key(where, path);
    }
  }
  if (!prefix.empty()) return;
  for (const auto& [path, repeats] : file.repeats) {
    if (repeats > 1) report(file.path, concat(path, ": given ", repeats + 1, " times in all"));
  }
}

bool Loader::is_retired(const std::string& where, const std::string& path,
                        const std::string& value) {
  const std::string_view instead = retired_key(path);
  if (instead.empty()) return false;
  if (path == kTrustRatio) {
    const bool is_adamw = value == "false";
    if (!is_adamw && value != "true") {
      report(where,
             concat(path, ": found \"", shortened(value), "\", want true or false; ", instead));
      return true;
    }
    loaded_.config.optimizer.name = is_adamw ? OptimizerName::kAdamw : OptimizerName::kLamb;
    loaded_.origins["optimizer.name"] = where;
  }
  if (warns_) log_line(LogLevel::kWarning, concat(where, ": ", path, " is retired; ", instead));
  return true;
}

// The intended key keeps its default, so its checks are skipped too. If nothing resembles it, ""
// stands for every key.
void Loader::refuse_key(const std::string& where, const std::string& path) {
  const std::string near = nearest_key(path);
  report(where, concat(path, ": unknown key; ",
                       near.empty() ? "`bertha config show` lists all keys"
                                    : "did you mean " + near + "?"));
  refused_.push_back(near);
}

void Loader::read_value(const std::string& where, const Key& key, const YAML::Node& value) {
  if (!value.IsScalar()) {
    const std::string hint = value.IsNull() && type_name(key) == "text" ? " (\"\" if empty)" : "";
    report(where, concat(key.path, ": found ", quoted_kind(value), ", want ",
                         type_name(key) == "integer" ? "an " : "a ", type_name(key), hint));
    return;
  }
  if (const std::string wrong = assign(key, value.Scalar(), loaded_.config); !wrong.empty()) {
    refuse_value(where, key, wrong);
    return;
  }
  loaded_.origins[std::string(key.path)] = where;
}

void Loader::apply(const Override& given) {
  const size_t equals = given.assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    report(given.spelled, "found no \"=\", want key=value, such as --set train.seed=1");
    return;
  }
  const std::string path = given.assignment.substr(0, equals);
  const std::string text = given.assignment.substr(equals + 1);
  const Key* const key = find_key(path);
  if (key == nullptr) {
    if (!is_retired(given.spelled, path, text)) refuse_key(given.spelled, path);
    return;
  }
  if (const std::string wrong = assign(*key, text, loaded_.config); !wrong.empty()) {
    refuse_value(given.spelled, *key, wrong);
    return;
  }
  loaded_.origins[path] = given.spelled;
}

void Loader::refuse_value(const std::string& where, const Key& key, const std::string& wrong) {
  report(where, concat(key.path, ": ", wrong));
  refused_.emplace_back(key.path);
}

// If every error concerns a single key or value, the remaining keys are checked too.
void Loader::report_contradictions() {
  if (errors_.size() != refused_.size()) return;
  for (const std::string& contradiction : contradictions(loaded_, 0)) {
    const bool of_refused = std::ranges::any_of(refused_, [&](const std::string& key) {
      return contradiction.find(key) != std::string::npos;
    });
    if (!of_refused) errors_.push_back(contradiction);
  }
}

LoadedConfig Loader::finish() {
  if (!errors_.empty()) {
    report_contradictions();
    std::string text = errors_.front();
    if (errors_.size() > 1) {
      text = concat(errors_.size(), " errors in the configuration:");
      for (const std::string& error : errors_ | std::views::take(kMaxListedErrors)) {
        text += "\n  " + error;
      }
      if (errors_.size() > kMaxListedErrors) text += "\n  ...";
    }
    fail(ExitCode::kUsage, text);
  }
  OptimizerConfig& optimizer = loaded_.config.optimizer;
  const bool is_adamw = optimizer.name == OptimizerName::kAdamw;
  if (is_adamw && !loaded_.origins.contains("optimizer.base_learning_rate")) {
    optimizer.base_learning_rate = kAdamwLearningRate;
  }
  for (const Key& key : config_keys()) loaded_.origins.emplace(key.path, kDefaultOrigin);
  return std::move(loaded_);
}

}  // namespace

LoadedConfig load_config(const std::vector<std::string>& files,
                         const std::vector<Override>& overrides, KeyWarnings warnings) {
  Loader loader(warnings == KeyWarnings::kOn);
  for (const std::string& file : files) loader.load_file(file, "");
  for (const Override& given : overrides) loader.apply(given);
  return loader.finish();
}

Config config_from_yaml(const std::string& text, const std::string& name) {
  Loader loader(false);
  loader.load_text(text, name);
  return loader.finish().config;
}

}  // namespace bertha

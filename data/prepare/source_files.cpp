#include "data/prepare/source_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/files/json_file.h"
#include "data/prepare/ascii_words.h"
#include "data/prepare/byte_stream.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNames = 10;  // in a message, for each reason

// --- kinds of files by their beginning ---

constexpr size_t kProbedBytes = size_t{1} << 16;
constexpr size_t kOpeningBytes = 1024;  // enough to show JSON and HTML
constexpr size_t kMaxProbedLine = size_t{1} << 20;
constexpr std::string_view kBlanks = " \t\r\n";

/// `text` begins with no blank; its last line may be cut.
bool is_json(std::string_view text) {
  const std::string_view first = text.substr(0, text.find('\n'));
  const size_t next = text.find_first_not_of(kBlanks, first.size());
  const bool goes_on = next == std::string_view::npos ||
                       std::string_view("{[]}\",").find(text[next]) != std::string_view::npos;
  if (!goes_on) return false;  // prose that begins with an example of JSON
  static const std::regex object(R"(^[\[\s]*\{\s*"[^"]*"\s*:)");
  if (std::regex_search(std::string(text.substr(0, kOpeningBytes)), object)) return true;
  try {
    return first.find('"') < first.size() && parse_json(first).is_array();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

bool is_html(std::string_view text) {
  static const std::regex tag(R"(<\?xml|<!doctype html|<html)", std::regex::icase);
  return text.starts_with('<') &&
         std::regex_search(std::string(text.substr(0, kOpeningBytes)), tag);
}

/// The columns of a table (RFC 4180); 0 if the text is not one. Its records have equally many
/// fields, and either the first names the columns or the fields are quoted.
int64_t columns_of_table(std::string_view text, char separator) {
  constexpr int64_t kMinRecords = 3, kMaxRecords = 20;
  constexpr size_t kMaxNameBytes = 40;
  static const std::regex name(R"("?(?=.*[A-Za-z])[\w -]+"?)");  // ASCII
  const char stops[] = {separator, '\n'};
  int64_t columns = 0, fields = 0, records = 0, quoted = 0;
  bool has_names = true;
  while (!text.empty() && records < kMaxRecords) {
    size_t size = text.find_first_of(stops, 0, 2);
    if (text.starts_with('"')) {
      size = text.find('"', 1);  // one that belongs to the field is written twice
      while (size < text.size() && text.substr(size + 1).starts_with('"')) {
        size = text.find('"', size + 2);
      }
      ++quoted;
      if (size < text.size()) ++size;
    }
    const std::string field(text.substr(0, size));
    text.remove_prefix(field.size());
    if (fields++ > 0 && field.starts_with(' ')) return 0;  // as after the comma of a sentence
    has_names = has_names &&
                (records > 0 || (field.size() <= kMaxNameBytes && std::regex_match(field, name)));
    if (!text.empty() && text.front() != separator && text.front() != '\n') return 0;
    const bool ends = text.empty() || text.front() == '\n';
    text.remove_prefix(text.empty() ? 0 : 1);
    if (!ends) continue;
    if (records++ == 0) columns = fields;
    if (std::exchange(fields, 0) != columns) return 0;
  }
  if (columns < 2 || records < kMinRecords) return 0;
  const bool has_many = columns > 2 || separator == '\t';
  const bool is_table = (has_names && (has_many || quoted > 0)) || 2 * quoted >= records ||
                        (columns > 2 && separator == '\t');
  return is_table ? columns : 0;
}

/// Whether an object is all of the first line.
bool begins_as_json_lines(const std::string& path) {
  ByteStream stream(path);
  std::string_view text = stream.peek(kMaxProbedLine).substr(0, kMaxProbedLine);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kBlanks)));
  const size_t end = text.find('\n');
  if (end == std::string_view::npos && text.size() + 3 >= kMaxProbedLine) return is_json(text);
  try {
    return text.empty() || parse_json(text.substr(0, end)).is_object();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

// --- which files are read ---

/// What files are that have a name with one of the endings.
struct NameForm {
  SourceForm form;
  const char* left_out_as;  // LeftOutReason::count; "" for a form that is read
  std::vector<const char*> endings = {};
};

/// The file's name in lower case, without the ending of a compression.
std::string plain_name(const std::string& path) {
  std::string name = fs::path(path).filename().string();
  std::ranges::transform(name, name.begin(), [](char c) { return ascii_words::lower(c); });
  for (const std::string_view ending : {".gz", ".bgz", ".xz", ".zst"}) {
    if (!name.ends_with(ending)) continue;
    name.resize(name.size() - ending.size());
    break;
  }
  return name;
}

/// The form that a plain_name() states.
NameForm form_of_name(const std::string& name) {
  static const std::vector<NameForm> kForms = {
      {SourceForm::kText, "", {".txt"}},
      {SourceForm::kJsonLines, "", {".jsonl", ".ndjson", ".json"}},
      {SourceForm::kCsv, "", {".csv"}},
      {SourceForm::kTsv, "", {".tsv"}},
      {SourceForm::kText, "left_out_markup", {".html", ".htm", ".xhtml", ".xml"}},
      {SourceForm::kText, "left_out_parquet", {".parquet", ".arrow"}},
      {SourceForm::kText, "left_out_office", {".docx", ".doc", ".odt", ".rtf", ".pdf", ".epub"}}};
  for (const NameForm& known : kForms) {
    const auto is_one = [&](const char* ending) { return name.ends_with(ending); };
    if (std::ranges::any_of(known.endings, is_one)) return known;
  }
  return {SourceForm::kText, name.starts_with("part-") ? "" : "left_out_names"};
}

/// LeftOutReason::count; empty for training text.
std::string left_out_as(const fs::directory_entry& entry) {
  std::error_code ignored;
  const fs::file_status status = entry.status(ignored);
  const std::string name = plain_name(entry.path().string());
  if (name.starts_with('.') || fs::is_directory(status)) return "left_out_folders";
  if (const std::string reason = form_of_name(name).left_out_as; !reason.empty()) return reason;
  if (name.starts_with("eval")) return "left_out_eval";
  if (!fs::is_regular_file(status)) return "left_out_links";
  const bool is_other_json =
      name.ends_with(".json") && !begins_as_json_lines(entry.path().string());
  return is_other_json ? "left_out_json" : "";
}

void check_complete(const std::string& folder, const std::vector<std::string>& paths,
                    MissingFiles accepted) {
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(fs::path(path).filename().string());
  const std::vector<std::string> missing = missing_of_numbered(names);
  if (!missing.empty()) {
    const std::string what =
        concat(folder, ": ", missing.size(), " of ", missing.size() + names.size(),
               " text files are missing: ", first_names(missing));
    if (accepted == MissingFiles::kRefuse) {
      fail(ExitCode::kData, what, "; copy them, or accept the existing part with --partial");
    }
    log_line(LogLevel::kWarning, what);
  }
  if (const std::vector<std::string> gaps = gaps_in_series(names); !gaps.empty()) {
    log_line(LogLevel::kWarning,
             concat(folder,
                    ": judging by the other names, text files are missing: ", first_names(gaps)));
  }
}

std::vector<std::string> files_of_folder(const std::string& folder, MissingFiles missing,
                                         std::map<std::string, int64_t>* left_out,
                                         const std::string& output) {
  std::map<std::string, std::vector<std::string>> files;   // by folder
  std::map<std::string, std::vector<std::string>> others;  // by reason
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored) && !entry->is_symlink(ignored)) {
      const bool is_output = !output.empty() && fs::equivalent(entry->path(), output, ignored);
      if (!is_output && !entry->path().filename().string().starts_with('.')) continue;
      entry.disable_recursion_pending();
    }
    const std::string reason = left_out_as(*entry);
    if (reason.empty()) {
      files[entry->path().parent_path().string()].push_back(entry->path().string());
    } else {
      others[reason].push_back(fs::relative(entry->path(), folder, ignored).string());
    }
  }
  if (error) fail(ExitCode::kData, folder, ": cannot list: ", error.message());
  std::string told;
  for (const auto& [count, text] : kLeftOutReasons) {
    std::vector<std::string>& names = others[count];
    if (names.empty()) continue;
    std::ranges::sort(names);
    told += concat("; ", text, ": ", names.size(), " (", first_names(names, kMaxNames), ")");
    if (left_out != nullptr) (*left_out)[count] += std::ssize(names);
  }
  if (files.empty()) {
    fail(ExitCode::kData, folder,
         ": no text in this folder, want files *.txt, part-*, *.jsonl, *.csv or *.tsv (files named"
         " eval* are left out); give the files",
         told);
  }
  if (!told.empty()) {
    log_line(LogLevel::kWarning,
             concat(folder, ": not read", told, "; to read a file or folder, give its path"));
  }
  std::vector<std::string> sorted;
  for (const auto& [name, paths] : files) {
    check_complete(name, paths, missing);
    sorted.insert(sorted.end(), paths.begin(), paths.end());
  }
  std::ranges::sort(sorted);
  return sorted;
}

/// The apparent kind of a text.
struct Contents {
  std::optional<SourceForm> form;  // in which it can be read
  std::string name = {};           // if it is not plain text, with what to do
  const char* remedy = "";
};

/// The form of the stream's text, judged by its first kProbedBytes bytes.
Contents contents_of(ByteStream& stream) {
  std::string text(stream.peek(kProbedBytes).substr(0, kProbedBytes));
  const bool is_all = text.size() < kProbedBytes;
  std::erase(text, '\r');
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  text.erase(0, text.find_first_not_of(kBlanks));
  if (is_json(text)) {
    return {
        SourceForm::kJsonLines, "JSON",
        "rename a file with one object per line to *.jsonl, and give its field with --field; or "
        "extract the text first, for example with jq -r .text"};
  }
  if (is_html(text)) {
    return {std::nullopt, "HTML or XML", "convert it first, for example with html2text"};
  }
  // The last record may be cut.
  text.resize(
      std::min(text.size(), is_all ? text.find_last_not_of(kBlanks) + 1 : text.rfind('\n')));
  for (const char separator : {',', ';', '\t'}) {
    const int64_t columns = columns_of_table(text, separator);
    if (columns == 0) continue;
    return {separator == '\t' ? SourceForm::kTsv : SourceForm::kCsv,
            concat("a table of ", columns, " columns"),
            "rename the file to *.csv or *.tsv, and give the column of the text with --field"};
  }
  return {SourceForm::kText};
}

SourceFile source_of(const std::string& path) {
  const auto stream = std::make_shared<ByteStream>(path);
  SourceFile source{.path = stream->path(),
                    .form = form_of_name(plain_name(path)).form,
                    .is_compressed = stream->is_compressed()};
  if (source.form == SourceForm::kText) {
    const Contents found = contents_of(*stream);
    if (stream->is_pipe() && found.form) {
      source.form = *found.form;
    } else if (!found.name.empty()) {
      fail(ExitCode::kData, source.path, ": begins as ", found.name,
           ", want plain text with a blank line between documents; ", found.remedy);
    }
  }
  std::error_code error;
  if (stream->is_pipe()) {
    source.stream = stream;
  } else {
    source.bytes = static_cast<int64_t>(fs::file_size(path, error));
  }
  return source;
}

}  // namespace

std::shared_ptr<ByteStream> SourceFile::open() const {
  return stream ? stream : std::make_shared<ByteStream>(path);
}

int64_t total_bytes(const std::vector<SourceFile>& sources) {
  int64_t bytes = 0;
  for (const SourceFile& source : sources) {
    if (source.stream) return 0;
    bytes += source.bytes;
  }
  return bytes;
}

std::vector<SourceFile> list_source_files(const std::vector<std::string>& inputs,
                                          MissingFiles missing,
                                          std::map<std::string, int64_t>* left_out,
                                          const std::string& output) {
  if (inputs.empty()) fail(ExitCode::kUsage, "no input text, want files or folders");
  std::vector<SourceFile> sources;
  std::set<fs::path> seen;
  bool has_text = false;
  for (const std::string& input : inputs) {
    const bool is_folder = fs::is_directory(input);
    for (const std::string& path :
         is_folder ? files_of_folder(input, missing, left_out, output) : std::vector{input}) {
      std::error_code error;
      const fs::path canonical = fs::weakly_canonical(path, error);
      if (!seen.insert(error ? fs::path(path) : canonical).second) {
        fail(ExitCode::kData, path, ": given twice, want each text once");
      }
      sources.push_back(source_of(path));
      has_text = has_text || sources.back().bytes > 0 || sources.back().stream != nullptr;
    }
  }
  if (!has_text) {
    fail(ExitCode::kData, sources.front().path, ": the input text is empty (", sources.size(),
         " files), want sentences, one per line, with a blank line between documents");
  }
  return sources;
}

}  // namespace bertha

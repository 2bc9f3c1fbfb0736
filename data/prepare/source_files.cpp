#include "data/prepare/source_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/files/json_file.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNames = 10;  // in a message, for each reason

/// LeftOutReason::count; empty for training text.
std::string left_out_as(const fs::directory_entry& entry) {
  std::error_code ignored;
  const fs::file_status status = entry.status(ignored);
  const std::string name = entry.path().filename().string();
  if (fs::is_directory(status)) return "left_out_folders";
  if (!name.ends_with(".txt") && !name.starts_with("part-")) return "left_out_names";
  if (name.starts_with("eval")) return "left_out_eval";
  return fs::is_regular_file(status) ? "" : "left_out_links";
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
      fail(ExitCode::kData, what, "; copy them, or accept the part that is there with --partial");
    }
    log_line(LogLevel::kWarning, what);
  }
  if (const std::vector<std::string> gaps = gaps_in_series(names); !gaps.empty()) {
    log_line(
        LogLevel::kWarning,
        concat(folder, ": going by the names of the others, text is missing: ", first_names(gaps)));
  }
}

std::vector<std::string> files_of_folder(const std::string& folder, MissingFiles missing,
                                         std::map<std::string, int64_t>* left_out) {
  std::vector<std::string> files;
  std::map<std::string, std::vector<std::string>> others;  // by reason
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string reason = left_out_as(*entry);
    if (reason.empty()) {
      files.push_back(entry->path().string());
    } else {
      others[reason].push_back(entry->path().filename().string());
    }
  }
  if (error) fail(ExitCode::kData, folder, ": cannot list: ", error.message());
  std::string told;
  for (const auto& [count, text] : kLeftOutReasons) {
    std::vector<std::string>& names = others[count];
    if (names.empty()) continue;
    std::ranges::sort(names);
    told += concat("; ", text, ": ", names.size(), " (", first_names(names, kMostNames), ")");
    if (left_out != nullptr) (*left_out)[count] += std::ssize(names);
  }
  if (files.empty()) {
    fail(ExitCode::kData, folder,
         ": no text in this folder, want files *.txt or part-* (those named eval* are left out);"
         " name the files",
         told);
  }
  if (!told.empty()) {
    log_line(LogLevel::kWarning,
             concat(folder, ": not read", told, "; to read a file or folder, give its path"));
  }
  std::ranges::sort(files);
  check_complete(folder, files, missing);
  return files;
}

// --- what a file begins as ---

constexpr size_t kProbedBytes = size_t{1} << 16;
constexpr size_t kOpeningBytes = 1024;  // that show JSON and HTML
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
  constexpr int64_t kFewestRecords = 3, kMostRecords = 20;
  constexpr size_t kMostNameBytes = 40;
  static const std::regex name(R"("?(?=.*[A-Za-z])[\w -]+"?)");  // ASCII
  const char stops[] = {separator, '\n'};
  int64_t columns = 0, fields = 0, records = 0, quoted = 0;
  bool has_names = true;
  while (!text.empty() && records < kMostRecords) {
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
                (records > 0 || (field.size() <= kMostNameBytes && std::regex_match(field, name)));
    if (!text.empty() && text.front() != separator && text.front() != '\n') return 0;
    const bool ends = text.empty() || text.front() == '\n';
    text.remove_prefix(text.empty() ? 0 : 1);
    if (!ends) continue;
    if (records++ == 0) columns = fields;
    if (std::exchange(fields, 0) != columns) return 0;
  }
  if (columns < 2 || records < kFewestRecords) return 0;
  const bool has_many = columns > 2 || separator == '\t';
  const bool is_table = (has_names && (has_many || quoted > 0)) || 2 * quoted >= records ||
                        (columns > 2 && separator == '\t');
  return is_table ? columns : 0;
}

}  // namespace

void check_plain_text(const std::string& path) {
  std::string text(kProbedBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const auto refuse = [&](const std::string& form, const char* remedy) {
    fail(ExitCode::kData, path, ": begins as ", form,
         ", want plain text with a blank line between documents; ", remedy);
  };
  std::erase(text, '\r');
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  text.erase(0, text.find_first_not_of(kBlanks));
  if (is_json(text)) refuse("JSON", "write its text out first, for example with jq -r .text");
  if (is_html(text)) refuse("HTML or XML", "convert it first, for example with html2text");
  // The last record may be cut.
  text.resize(
      std::min(text.size(), file.eof() ? text.find_last_not_of(kBlanks) + 1 : text.rfind('\n')));
  for (const char separator : {',', ';', '\t'}) {
    if (const int64_t columns = columns_of_table(text, separator); columns > 0) {
      refuse(concat("a table of ", columns, " columns"), "write the column of the text out first");
    }
  }
}

std::vector<SourceFile> list_source_files(const std::vector<std::string>& inputs,
                                          MissingFiles missing,
                                          std::map<std::string, int64_t>* left_out) {
  if (inputs.empty()) fail(ExitCode::kUsage, "no input text, want files or folders");
  std::vector<SourceFile> sources;
  std::set<fs::path> seen;
  int64_t total_bytes = 0;
  for (const std::string& input : inputs) {
    const bool is_folder = fs::is_directory(input);
    for (const std::string& path :
         is_folder ? files_of_folder(input, missing, left_out) : std::vector{input}) {
      std::error_code error;
      const auto bytes = static_cast<int64_t>(fs::file_size(path, error));
      if (error) {
        fail(ExitCode::kData, path, ": cannot read: ", error.message(),
             "; give the path of a readable text file");
      }
      if (!seen.insert(fs::weakly_canonical(path)).second) {
        fail(ExitCode::kData, path, ": given twice, want each text once");
      }
      check_plain_text(path);
      sources.push_back(SourceFile{.path = path, .bytes = bytes});
      total_bytes += bytes;
    }
  }
  if (total_bytes == 0) {
    fail(ExitCode::kData, sources.front().path, ": the input text is empty (", sources.size(),
         " files), want sentences, one per line, with a blank line between documents");
  }
  return sources;
}

}  // namespace bertha

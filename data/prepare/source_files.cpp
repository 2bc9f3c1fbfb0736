#include "data/prepare/source_files.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "data/prepare/plain_text.h"
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

}  // namespace

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

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/format/shard_names.h"

namespace bertha {

/// A text file to read.
struct SourceFile {
  std::string path;
  int64_t bytes = 0;
};

/// Why something in a folder is not read as training text.
struct LeftOutReason {
  const char* count;  // a name of Manifest::counts
  const char* text;
};
inline constexpr LeftOutReason kLeftOutReasons[] = {
    {"left_out_names", "named neither *.txt nor part-*"},
    {"left_out_eval", "named eval*"},
    {"left_out_folders", "folders"},
    {"left_out_links", "broken links, devices and pipes"}};

/// The files that the inputs stand for: a file itself; of a folder, sorted by name, its files
/// `*.txt` and `part-*`, but none whose name starts with "eval" (evaluation text lies beside
/// training text in the published layout; name it to read it). A warning names what else is in the
/// folder and why it is left out; `left_out`, if any, receives the numbers by reason.
///
/// Errors    Error(kData) naming the input: missing, unreadable, no such file in a folder, given
///           twice, all files empty, no plain text (check_plain_text()); a folder that lacks files
///           of a numbered set (part-00007-of-00500 tells that there are 500), unless that is
///           accepted: then a warning names them. A gap in plain numbers is always but a warning.
std::vector<SourceFile> list_source_files(const std::vector<std::string>& inputs,
                                          MissingFiles missing,
                                          std::map<std::string, int64_t>* left_out = nullptr);

/// Refuses a file that begins as JSON, JSON lines, HTML, XML, or a table of values separated by
/// commas, semicolons or tabs: a model would learn the markup. A file that may be plain text
/// passes. So does a missing file, which its reader reports.
///
/// Errors    Error(kData) naming the file, the form found, and what to do.
void check_plain_text(const std::string& path);

}  // namespace bertha

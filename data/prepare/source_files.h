#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/format/shard_names.h"

namespace bertha {

/// A text file to read.
struct SourceFile {
  std::string path;
  int64_t bytes = 0;
};

/// The files that the inputs stand for: a file itself; of a folder, sorted by name, its files
/// `*.txt` and `part-*`, but none whose name starts with "eval" (evaluation text lies beside
/// training text in the published layout; name it to read it).
///
/// Errors    Error(kData) naming the input: missing, unreadable, no such file in a folder, given
///           twice, all files empty; a folder that lacks files of a numbered set
///           (part-00007-of-00500 tells that there are 500), unless that is accepted: then a
///           warning names them. A gap in plain numbers is always but a warning.
std::vector<SourceFile> list_source_files(const std::vector<std::string>& inputs,
                                          MissingFiles missing);

}  // namespace bertha

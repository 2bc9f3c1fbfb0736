#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/format/shard_names.h"

namespace bertha {

class ByteStream;

enum class SourceForm : uint8_t { kText, kJsonLines, kCsv, kTsv };

/// The ids of a tokenizer that is not ours.
struct TokenIds {
  int64_t count = 0;           // entries of the vocabulary
  std::set<int64_t> reserved;  // [CLS], [SEP], [PAD] and [MASK], which no text may contain
};

/// A text to read.
struct SourceFile {
  std::string path;
  int64_t bytes = 0;  // as stored; 0 for a pipe
  SourceForm form = SourceForm::kText;
  bool is_compressed = false;
  std::shared_ptr<ByteStream> stream = nullptr;  // for a pipe, which can be read only once

  /// A new stream of its bytes, or the existing one.
  std::shared_ptr<ByteStream> open() const;
  /// Whether its bytes are lines of text.
  bool is_plain() const { return form == SourceForm::kText && !is_compressed && !stream; }
};

/// Bytes of all, for progress; 0 if one is a pipe.
int64_t total_bytes(const std::vector<SourceFile>& sources);

/// Why something in a folder is not read as training text.
struct LeftOutReason {
  const char* count;  // a name of Manifest::counts
  const char* text;
};
inline constexpr LeftOutReason kLeftOutReasons[] = {
    {"left_out_names",
     "named neither *.txt, part-*, *.jsonl, *.ndjson, *.json, *.csv nor *.tsv (.gz, .bgz, .xz or "
     ".zst may follow)"},
    {"left_out_eval", "named eval*"},
    {"left_out_markup", "HTML or XML, convert them first"},
    {"left_out_parquet", "Parquet or Arrow, pipe their rows into --text - as JSON lines"},
    {"left_out_office", "PDF, EPUB or office documents, save them as text"},
    {"left_out_json", "JSON, but not one object per line"},
    {"left_out_folders", "hidden, or a folder that is a link or the output"},
    {"left_out_links", "broken links, devices and pipes"}};

/// The texts that the inputs stand for: a file itself; "-", which is standard input; of a folder
/// and the folders in it, sorted by path, the files that have the name of a text, but none whose
/// name starts with "eval" (evaluation text lies next to training text in the published layout;
/// name it to read it). The name determines the form; input without a known name, such as standard
/// input, is text or, if it is a pipe, determined by its beginning. A warning names the other files
/// of the folder and why they are left out; `left_out`, if any, receives their numbers by reason.
/// The folder `output`, if any, is left out.
///
/// Errors    Error(kData) naming the input: missing, unreadable, no such file in a folder, given
///           twice, all files empty, errors of ByteStream; text that begins as JSON, HTML, XML, or
///           a table of values separated by commas, semicolons or tabs, with what to do, because a
///           model would learn the markup; a folder that lacks files of a numbered set
///           (part-00007-of-00500 tells that there are 500), unless that is accepted: then a
///           warning names them. A gap in plain numbers is always but a warning.
std::vector<SourceFile> list_source_files(const std::vector<std::string>& inputs,
                                          MissingFiles missing,
                                          std::map<std::string, int64_t>* left_out = nullptr,
                                          const std::string& output = "");

}  // namespace bertha

#include "data/prepare/intake.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <span>
#include <utility>

#include "data/files/for_each_parallel.h"
#include "data/files/hashing.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "data/prepare/byte_stream.h"
#include "data/prepare/sentences.h"
#include "data/prepare/unicode_text.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

constexpr size_t kMaxDocumentBytes = size_t{1} << 20;
constexpr size_t kMaxParagraphBytes = size_t{1} << 20;

/// Consecutive sources whose text is cut into parts by itself.
struct SourceGroup {
  std::span<const SourceFile> sources;
  size_t part_bytes = 0;
};

/// A document in the text of a group.
struct DocumentPlace {
  uint64_t hash = std::numeric_limits<uint64_t>::max();
  size_t part = 0;
  size_t offset = 0;
  size_t bytes = 0;
};

struct GroupText {
  std::vector<ManifestSource> parts;
  std::string held_out;
  int64_t documents = 0;
  int64_t held_out_documents = 0;
  DocumentPlace least;  // among those that are not held out
};

ManifestSource write_part(const std::string& path, const std::string& text) {
  write_new_file(path, text);
  Digest digest("SHA256");
  digest.update(text);
  return {.path = path, .bytes = std::ssize(text), .sha256 = digest.finish()};
}

/// Cuts the lines of one group into sentences, documents and parts.
class PartCutter {
 public:
  PartCutter(const IntakeOptions& options, size_t part_bytes, std::string path)
      : options_(options),
        part_bytes_(part_bytes),
        path_(std::move(path)),
        // Compared with 53 bits of the hash, as a double has.
        threshold_(static_cast<uint64_t>(options.hold_out * 0x1p53)) {}

  void add_line(std::string_view line) {
    line = strip(line);
    if (line.empty()) {
      end_paragraph();
    } else if (options_.text_form == TextForm::kProse) {
      paragraph_.append(line).append(" ");
      if (paragraph_.size() > kMaxParagraphBytes) cut_paragraph();
    } else {
      for (const std::string& sentence : split_sentences(line)) add_sentence(sentence);
    }
  }

  void end_document() {
    end_paragraph();
    if (document_.empty()) return;
    ++text_.documents;
    document_ += '\n';
    const uint64_t hash = xxh3_of_text(document_, options_.seed);
    if (hash >> 11 < threshold_) {
      ++text_.held_out_documents;
      text_.held_out += document_;
    } else {
      if (hash < text_.least.hash) {
        text_.least = {.hash = hash,
                       .part = text_.parts.size(),
                       .offset = part_.size(),
                       .bytes = document_.size()};
      }
      part_ += document_;
      if (part_.size() >= part_bytes_) end_part();
    }
    document_.clear();
  }

  GroupText finish() {
    end_document();
    if (!part_.empty()) end_part();
    return std::move(text_);
  }

 private:
  void add_sentence(std::string_view sentence) {
    for_each_piece(sentence, kMaxLineBytes,
                   [&](std::string_view piece) { document_.append(piece).append("\n"); });
    if (document_.size() >= kMaxDocumentBytes) {
      std::string paragraph = std::exchange(paragraph_, "");
      end_document();
      paragraph_ = std::move(paragraph);
    }
  }

  void end_paragraph() {
    const std::string paragraph = std::exchange(paragraph_, "");
    for (const std::string& sentence : split_sentences(paragraph)) add_sentence(sentence);
  }

  /// All sentences of the paragraph except the last, which may continue.
  void cut_paragraph() {
    std::vector<std::string> sentences = split_sentences(std::exchange(paragraph_, ""));
    if (sentences.back().size() < kMaxParagraphBytes) {
      paragraph_ = std::move(sentences.back()) + " ";
      sentences.pop_back();
    }
    for (const std::string& sentence : sentences) add_sentence(sentence);
  }

  void end_part() {
    text_.parts.push_back(write_part(concat(path_, '_', text_.parts.size(), ".txt"), part_));
    part_.clear();
  }

  const IntakeOptions& options_;
  const size_t part_bytes_;
  const std::string path_;
  const uint64_t threshold_;
  std::string paragraph_;
  std::string document_;  // a sentence a line
  std::string part_;
  GroupText text_;
};

/// Small files together, and large ones alone.
std::vector<SourceGroup> group_sources(std::span<const SourceFile> sources, int64_t part_bytes) {
  std::vector<SourceGroup> groups;
  while (!sources.empty()) {
    int64_t bytes = sources[0].bytes;
    size_t count = 1;
    const auto joins = [&](const SourceFile& next) {
      return bytes + next.bytes <= part_bytes && !next.stream && !sources[0].stream;
    };
    while (count < sources.size() && part_bytes > 0 && joins(sources[count])) {
      bytes += sources[count++].bytes;
    }
    const std::span<const SourceFile> group = sources.first(count);
    int64_t wanted = part_bytes == 0 ? std::numeric_limits<int64_t>::max() : part_bytes;
    const bool has_text_of_its_size = std::ranges::all_of(
        group, [](const SourceFile& file) { return !file.stream && !file.is_compressed; });
    if (has_text_of_its_size && part_bytes > 0) {
      // Equal parts, and a little more, so that no small rest becomes a part.
      const int64_t equal = bytes / std::max<int64_t>(1, ceil_div(bytes, part_bytes));
      wanted = equal + equal / 16 + 65536;
    }
    groups.push_back({.sources = group, .part_bytes = static_cast<size_t>(wanted)});
    sources = sources.subspan(count);
  }
  return groups;
}

/// Held-out texts of all groups in files of about part_bytes.
std::vector<ManifestSource> write_held_out(const std::vector<GroupText>& groups,
                                           const IntakeOptions& options) {
  std::vector<ManifestSource> parts;
  std::string text;
  const auto end_part = [&] {
    if (text.empty()) return;
    parts.push_back(write_part(concat(options.folder, "/held_out_", parts.size(), ".txt"), text));
    text.clear();
  };
  for (const GroupText& group : groups) {
    text += group.held_out;
    if (options.part_bytes > 0 && std::ssize(text) >= options.part_bytes) end_part();
  }
  end_part();
  return parts;
}

/// Holds out the document with the least hash.
void hold_out_one(std::vector<GroupText>& groups) {
  GroupText& group =
      *std::ranges::min_element(groups, {}, [](const GroupText& each) { return each.least.hash; });
  ManifestSource& part = group.parts.at(group.least.part);
  std::string text = read_text_file(part.path, std::numeric_limits<int64_t>::max());
  if (text.size() == group.least.bytes) return;  // the only document of its part
  group.held_out = text.substr(group.least.offset, group.least.bytes);
  group.held_out_documents = 1;
  text.erase(group.least.offset, group.least.bytes);
  part = write_part(part.path, text);
}

}  // namespace

DocumentForm find_document_form(const std::vector<SourceFile>& sources, DocumentForm given) {
  constexpr size_t kProbedBytes = size_t{1} << 20;
  constexpr int64_t kMaxProbed = 64;
  constexpr int64_t kLongLineBytes = 200;
  if (given != DocumentForm::kAuto) return given;
  int64_t probed = 0, bytes = 0, lines = 0;
  bool has_blank = false;
  for (const SourceFile& source : sources) {
    if (source.form != SourceForm::kText || probed == kMaxProbed) continue;
    ++probed;
    std::string text(source.open()->peek(kProbedBytes).substr(0, kProbedBytes));
    std::erase_if(text, [](char c) { return c == '\r' || c == '\t' || c == ' '; });
    text.erase(0, text.find_first_not_of('\n'));
    text.erase(text.find_last_not_of('\n') + 1);
    has_blank = has_blank || text.find("\n\n") != std::string::npos;
    bytes += std::ssize(text);
    lines += count_lines(text);
  }
  if (probed == 0) return DocumentForm::kBlank;
  const DocumentForm found = has_blank                         ? DocumentForm::kBlank
                             : bytes >= kLongLineBytes * lines ? DocumentForm::kLine
                                                               : DocumentForm::kFile;
  log_line(LogLevel::kInfo, concat("plain text: ",
                                   found == DocumentForm::kBlank ? "blank lines separate documents"
                                   : found == DocumentForm::kLine
                                       ? "no blank lines, and long lines: a line is a document"
                                       : "no blank lines: a file is a document",
                                   " (choose with --documents blank|line|file)"));
  return found;
}

Intake write_text_parts(const std::vector<SourceFile>& sources, const IntakeOptions& options,
                        const std::function<void(int64_t bytes)>& on_bytes) {
  const DocumentForm documents =
      options.ids ? DocumentForm::kFile : find_document_form(sources, options.documents);
  const std::vector<SourceGroup> groups = group_sources(sources, options.part_bytes);
  std::vector<GroupText> texts(groups.size());
  const auto read = [&](int64_t index, const std::function<bool()>& cancelled) {
    const SourceGroup& group = groups[static_cast<size_t>(index)];
    PartCutter cutter(options, group.part_bytes, concat(options.folder, "/text_", index));
    const TextSink sink{.line = [&](std::string_view line) { cutter.add_line(line); },
                        .end_document = [&] { cutter.end_document(); },
                        .bytes =
                            [&](int64_t bytes) {
                              if (cancelled()) throw Cancelled();
                              on_bytes(bytes);
                            }};
    for (const SourceFile& source : group.sources) {
      read_source(source, documents, options.field, sink, options.ids);
    }
    texts[static_cast<size_t>(index)] = cutter.finish();
  };
  for_each_parallel(std::ssize(groups), options.workers, read);

  const auto sum = [&](int64_t GroupText::*count) {
    int64_t total = 0;
    for (const GroupText& text : texts) total += text.*count;
    return total;
  };
  const int64_t num_documents = sum(&GroupText::documents);
  if (num_documents == 0) {
    fail(ExitCode::kData, sources.front().path, ": no document in the input text (", sources.size(),
         " files); give more text");
  }
  if (options.hold_out > 0 && sum(&GroupText::held_out_documents) == 0 && num_documents > 1) {
    hold_out_one(texts);
  }
  Intake result{.parts = {},
                .held_out = write_held_out(texts, options),
                .held_out_documents = sum(&GroupText::held_out_documents)};
  if (result.held_out_documents == num_documents) {
    fail(ExitCode::kData, sources.front().path, ": all ", num_documents,
         " documents of the input text are held out; lower --hold-out");
  }
  for (const GroupText& text : texts) {
    result.parts.insert(result.parts.end(), text.parts.begin(), text.parts.end());
  }
  return result;
}

}  // namespace bertha

#include "data/prepare/part_reader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "data/prepare/unicode_text.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kReportBytes = int64_t{1} << 20;

void close_document(Documents& documents) {
  if (documents.num_sentences() > documents.document_offsets.back()) {
    documents.document_offsets.push_back(documents.num_sentences());
  }
}

}  // namespace

LineReader::LineReader(const std::string& path, std::function<void(int64_t bytes)> on_bytes)
    : path_(path), line_(kMostLineBytes + 1, '\0'), on_bytes_(std::move(on_bytes)) {
  std::error_code ignored;
  // Opening it would wait for a writer. A shell's <(zcat ...) is a link to a pipe that has one.
  if (std::filesystem::is_fifo(std::filesystem::symlink_status(path, ignored))) {
    fail(ExitCode::kData, path, ": is a named pipe, want a text file");
  }
  file_.open(path, std::ios::binary);
  if (!file_) {
    fail(ExitCode::kData, path, ": cannot open: ", std::strerror(errno),
         "; give the path of a readable text file");
  }
  if (std::filesystem::is_directory(path, ignored)) {
    fail(ExitCode::kData, path, ": is a folder, want a text file");
  }
}

void LineReader::tell(int64_t least_bytes) {
  if (!on_bytes_ || bytes_read_ - bytes_told_ < least_bytes) return;
  on_bytes_(bytes_read_ - std::exchange(bytes_told_, bytes_read_));
}

std::optional<std::string_view> LineReader::next() {
  file_.getline(line_.data(), std::ssize(line_));  // fails where the line does not fit
  if (file_.bad()) {
    fail(ExitCode::kData, path_, ": cannot read beyond byte ", bytes_read_, ": ",
         std::strerror(errno));
  }
  if (file_.gcount() == 0) {
    tell(0);
    return std::nullopt;
  }
  tell(kReportBytes);
  bytes_read_ += file_.gcount();
  ++line_number_;
  if (file_.fail()) {
    fail(ExitCode::kData, path_, ", line ", line_number_, ": longer than ", kMostLineBytes,
         " bytes, want one sentence per line and a blank line between documents;"
         " give --prose for ordinary text");
  }
  const int64_t line_bytes = file_.gcount() - (file_.eof() ? 0 : 1);
  const std::string_view line(line_.data(), static_cast<size_t>(line_bytes));
  if (const size_t at = line.find('\0'); at != std::string_view::npos) {
    fail(ExitCode::kData, path_, ", line ", line_number_, ", byte ", at + 1,
         ": a zero byte, as binary files and UTF-16 have; give text in UTF-8, or remove the zero "
         "bytes (tr -d '\\000')");
  }
  if (const std::optional<int64_t> at = first_invalid_utf8(line)) {
    fail(ExitCode::kData, path_, ", line ", line_number_, ", byte ", *at + 1,
         ": not valid UTF-8; convert the file to UTF-8");
  }
  const auto end = std::remove(line_.begin(), line_.begin() + line_bytes, '\r');
  return line.substr(0, static_cast<size_t>(end - line_.begin()));
}

Documents read_documents(const std::string& path, WordPieceTokenizer& tokenizer,
                         const std::function<void(int64_t bytes)>& on_bytes) {
  Documents documents;
  LineReader lines(path, on_bytes);
  while (const std::optional<std::string_view> raw = lines.next()) {
    const std::string_view line = strip(*raw);
    if (line.empty()) {
      close_document(documents);
      continue;
    }
    tokenizer.append_ids(line, documents.token_ids);
    if (documents.num_tokens() > documents.sentence_offsets.back()) {
      documents.sentence_offsets.push_back(documents.num_tokens());
    }
  }
  close_document(documents);
  if (documents.size() == 0) {
    fail(ExitCode::kData, path, ": holds no document in its ", lines.bytes_read(),
         " bytes, want sentences, one per line, with a blank line between documents");
  }
  return documents;
}

}  // namespace bertha

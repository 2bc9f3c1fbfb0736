#include "data/prepare/part_reader.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "data/prepare/unicode_text.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 18;
constexpr int64_t kReportBytes = int64_t{1} << 20;

void close_document(Documents& documents) {
  if (documents.num_sentences() > documents.document_offsets.back()) {
    documents.document_offsets.push_back(documents.num_sentences());
  }
}

}  // namespace

LineReader::LineReader(const std::string& path)
    : path_(path), file_(std::fopen(path.c_str(), "rb"), std::fclose) {
  if (!file_) {
    fail(ExitCode::kData, path, ": cannot open: ", std::strerror(errno),
         "; give the path of a readable text file");
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail(ExitCode::kData, path, ": is a folder, want a text file");
  }
}

bool LineReader::fill() {
  if (ended_) return false;
  block_.erase(0, at_);
  end_ -= at_;
  at_ = 0;
  block_.resize(end_ + kBlockBytes);
  const size_t got = std::fread(block_.data() + end_, 1, kBlockBytes, file_.get());
  if (got == 0 && std::ferror(file_.get()) != 0) {
    fail(ExitCode::kData, path_, ": cannot read beyond byte ", bytes_read_, ": ",
         std::strerror(errno));
  }
  ended_ = got == 0;
  end_ += got;
  block_.resize(end_);
  bytes_read_ += static_cast<int64_t>(got);
  return got > 0;
}

std::optional<std::string_view> LineReader::next() {
  size_t searched = 0;
  while (true) {
    const std::string_view rest = std::string_view(block_).substr(at_, end_ - at_);
    const size_t length = rest.find('\n', searched);
    if (length != std::string_view::npos) {
      at_ += length + 1;
      return checked(rest.substr(0, length));
    }
    searched = rest.size();
    if (static_cast<int64_t>(searched) > kMostLineBytes) return checked(rest);
    if (!fill()) {
      at_ = end_;
      if (rest.empty()) return std::nullopt;
      return checked(std::string_view(block_).substr(end_ - searched));
    }
  }
}

std::string_view LineReader::checked(std::string_view line) {
  ++line_number_;
  if (static_cast<int64_t>(line.size()) > kMostLineBytes) {
    fail(ExitCode::kData, path_, ", line ", line_number_, ": longer than ", kMostLineBytes,
         " bytes, want one sentence per line and a blank line between documents;"
         " split the text into sentences");
  }
  if (const std::optional<int64_t> at = first_invalid_utf8(line)) {
    fail(ExitCode::kData, path_, ", line ", line_number_, ", byte ", *at + 1,
         ": not valid UTF-8; convert the file to UTF-8");
  }
  return without_returns(line);
}

std::string_view LineReader::without_returns(std::string_view line) {
  if (line.find('\r') == std::string_view::npos) return line;
  line_ = line;
  std::erase(line_, '\r');
  return line_;
}

Documents read_documents(const std::string& path, WordPieceTokenizer& tokenizer,
                         const std::function<void(int64_t bytes)>& on_bytes) {
  Documents documents;
  LineReader lines(path);
  int64_t reported_bytes = 0;
  while (const std::optional<std::string_view> raw = lines.next()) {
    const std::string_view line = strip(*raw);
    if (line.empty()) close_document(documents);
    tokenizer.append_ids(line, documents.token_ids);
    if (documents.num_tokens() > documents.sentence_offsets.back()) {
      documents.sentence_offsets.push_back(documents.num_tokens());
    }
    if (lines.bytes_read() - reported_bytes >= kReportBytes) {
      on_bytes(lines.bytes_read() - reported_bytes);
      reported_bytes = lines.bytes_read();
    }
  }
  close_document(documents);
  on_bytes(lines.bytes_read() - reported_bytes);
  if (documents.size() == 0) {
    fail(ExitCode::kData, path, ": holds no document in its ", lines.bytes_read(),
         " bytes, want sentences, one per line, with a blank line between documents");
  }
  return documents;
}

}  // namespace bertha

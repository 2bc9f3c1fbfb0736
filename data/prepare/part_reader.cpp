#include "data/prepare/part_reader.h"

#include <algorithm>
#include <span>
#include <utility>

#include "data/prepare/unicode_text.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

void close_document(Documents& documents) {
  if (documents.num_sentences() > documents.document_offsets.back()) {
    documents.document_offsets.push_back(documents.num_sentences());
  }
}

}  // namespace

LineReader::LineReader(const std::string& path, std::function<void(int64_t bytes)> on_bytes)
    : LineReader(path, std::make_shared<ByteStream>(path), std::move(on_bytes)) {}

LineReader::LineReader(std::string path, std::shared_ptr<ByteStream> stream,
                       std::function<void(int64_t bytes)> on_bytes)
    : path_(std::move(path)), stream_(std::move(stream)), on_bytes_(std::move(on_bytes)) {}

std::optional<std::string_view> LineReader::next() {
  const std::optional<std::string_view> piece = next_piece(kMostLineBytes + 1);
  if (!piece) return std::nullopt;
  const size_t line_bytes = piece->size() - (piece->ends_with('\n') ? 1 : 0);
  if (!ends_line() || line_bytes > kMostLineBytes) {
    fail(ExitCode::kData, path_, ", line ", line_number_, ": longer than ", kMostLineBytes,
         " bytes, want one sentence per line and a blank line between documents;"
         " give --prose for ordinary text");
  }
  const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(at_ - piece->size());
  const auto end = std::remove(begin, begin + static_cast<std::ptrdiff_t>(line_bytes), '\r');
  return piece->substr(0, static_cast<size_t>(end - begin));
}

std::optional<std::string_view> LineReader::next_piece(size_t most) {
  size_t end = text_.find('\n', at_);
  while (end == std::string::npos && text_.size() - at_ <= most) {
    const size_t unread = text_.size() - at_;
    if (!read_more()) break;
    end = text_.find('\n', unread);
  }
  std::string_view line = std::string_view(text_).substr(at_, end - at_ + (end < text_.size()));
  if (line.empty()) return std::nullopt;
  line = line.substr(0, first_piece(line, most));
  at_ += line.size();
  if (ends_line_) ++line_number_;
  ends_line_ = line.ends_with('\n');
  check(line);
  return line;
}

/// Appends a block to what is unread, which moves to the front; false at the end.
bool LineReader::read_more() {
  constexpr size_t kBlockBytes = size_t{1} << 18;
  text_.erase(0, std::exchange(at_, 0));
  const size_t before = text_.size();
  text_.resize(before + kBlockBytes);
  const size_t size = stream_->read(std::span(text_).subspan(before));
  text_.resize(before + size);
  if (on_bytes_) on_bytes_(bytes_read() - std::exchange(bytes_told_, bytes_read()));
  return size > 0;
}

void LineReader::check(std::string_view line) const {
  if (const size_t at = line.find('\0'); at != std::string_view::npos) {
    fail(ExitCode::kData, path_, ", line ", line_number_, ", byte ", at + 1,
         ": a zero byte, as binary files and UTF-16 have; give text in UTF-8, or remove the zero "
         "bytes (tr -d '\\000')");
  }
  if (const std::optional<int64_t> at = first_invalid_utf8(line)) {
    fail(ExitCode::kData, path_, ", line ", line_number_, ", byte ", *at + 1,
         ": not valid UTF-8; convert the file to UTF-8");
  }
}

size_t first_piece(std::string_view text, size_t most) {
  if (text.size() <= most) return text.size();
  if (const size_t blank = text.find_last_of(" \t\n", most - 1); blank != std::string_view::npos) {
    return blank + 1;
  }
  size_t size = most;
  while (size > 1 && !starts_character(text[size])) --size;
  return size;
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

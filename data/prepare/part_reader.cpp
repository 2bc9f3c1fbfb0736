#include "data/prepare/part_reader.h"

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

/// Bytes of the longest piece of the text, at most `most`, that ends after white space, or else
/// between characters.
size_t first_piece(std::string_view text, size_t most) {
  if (text.size() <= most) return text.size();
  if (const size_t blank = text.find_last_of(" \t\n", most - 1); blank != std::string_view::npos) {
    return blank + 1;
  }
  size_t size = most;
  while (size > 1 && !starts_character(text[size])) --size;
  return size;
}

}  // namespace

LineReader::LineReader(const std::string& path, std::function<void(int64_t bytes)> on_bytes)
    : LineReader(std::make_shared<ByteStream>(path), std::move(on_bytes)) {}

LineReader::LineReader(std::shared_ptr<ByteStream> stream,
                       std::function<void(int64_t bytes)> on_bytes)
    : stream_(std::move(stream)), on_bytes_(std::move(on_bytes)) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (stream_->peek(kByteOrderMark.size()).starts_with(kByteOrderMark)) {
    stream_->skip(kByteOrderMark.size());
  }
}

std::optional<std::string_view> LineReader::next() {
  const std::optional<std::string_view> piece = next_piece(kMaxLineBytes + 1);
  if (!piece) return std::nullopt;
  if (!ends_line_ || piece->size() - piece->ends_with('\n') > kMaxLineBytes) {
    fail(ExitCode::kData, path(), ", line ", line_number_, ": longer than ", kMaxLineBytes,
         " bytes, want one sentence per line and a blank line between documents;"
         " give --prose for ordinary text");
  }
  return without_line_end(*piece, line_);
}

std::optional<std::string_view> LineReader::next_piece(size_t most) {
  std::string_view text = stream_->peek(1);
  size_t end = text.find('\n');
  while (end == std::string_view::npos && text.size() <= most) {
    const size_t searched = text.size();
    text = stream_->peek(searched + 1);
    if (text.size() == searched) break;
    end = text.find('\n', searched);
  }
  if (on_bytes_ && bytes_told_ != bytes_read()) {
    on_bytes_(bytes_read() - std::exchange(bytes_told_, bytes_read()));
  }
  if (text.empty()) return std::nullopt;
  std::string_view line = text.substr(0, end < text.size() ? end + 1 : text.size());
  line = line.substr(0, first_piece(line, most));
  stream_->skip(line.size());
  if (ends_line_) ++line_number_;
  ends_line_ = line.ends_with('\n') || line.size() == text.size();
  check(line);
  return line;
}

void LineReader::check(std::string_view line) const {
  if (const size_t at = line.find('\0'); at != std::string_view::npos) {
    fail(ExitCode::kData, path(), ", line ", line_number_, ", byte ", at + 1,
         ": a zero byte, as in binary files and UTF-16; give text in UTF-8, or remove the zero "
         "bytes (tr -d '\\000')");
  }
  if (const std::optional<int64_t> at = first_invalid_utf8(line)) {
    fail(ExitCode::kData, path(), ", line ", line_number_, ", byte ", *at + 1,
         ": not valid UTF-8; convert the file to UTF-8");
  }
}

void for_each_piece(std::string_view text, size_t most,
                    const std::function<void(std::string_view piece)>& take) {
  while (!text.empty()) {
    const size_t size = first_piece(text, most);
    take(text.substr(0, size));
    text.remove_prefix(size);
  }
}

std::string_view without_line_end(std::string_view line, std::string& scratch) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.find('\r') == std::string_view::npos) return line;
  scratch = line;
  std::erase(scratch, '\r');
  return scratch;
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
    fail(ExitCode::kData, path, ": contains no document in its ", lines.bytes_read(),
         " bytes, want sentences, one per line, with a blank line between documents");
  }
  return documents;
}

}  // namespace bertha

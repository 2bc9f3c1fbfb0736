#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare/byte_stream.h"
#include "data/prepare/wordpiece.h"

namespace bertha {

/// The longest line that is read as a sentence.
inline constexpr int64_t kMaxLineBytes = int64_t{1} << 20;

/// The lines of a UTF-8 text file, without the byte order mark that some editors write first. Only
/// '\n' ends one.
///
/// Errors    as ByteStream; Error(kData) naming file and line: invalid UTF-8, a zero byte
///           (the published code removes it).
class LineReader {
 public:
  /// `on_bytes` hears now and then, and at the end, how many bytes were read since it last heard.
  explicit LineReader(const std::string& path, std::function<void(int64_t bytes)> on_bytes = {});
  LineReader(std::shared_ptr<ByteStream> stream, std::function<void(int64_t bytes)> on_bytes);

  /// The next line without its '\n' and without any '\r', which TensorFlow's readline leaves out
  /// wherever it stands; valid until the following call; nothing after the last.
  /// Error(kData): a line of more than kMaxLineBytes.
  std::optional<std::string_view> next();
  /// The next line with its '\n', which the last one may lack. Of a line of more than `most` bytes
  /// it is the first piece, as for_each_piece() cuts it; the next call returns the next one.
  std::optional<std::string_view> next_piece(size_t most);
  /// Whether the last piece was the last of its line.
  bool ends_line() const { return ends_line_; }

  /// Number of the last line, counted from 1.
  int64_t line_number() const { return line_number_; }
  int64_t bytes_read() const { return stream_->bytes_read(); }
  const std::string& path() const { return stream_->path(); }

 private:
  void check(std::string_view line) const;

  std::shared_ptr<ByteStream> stream_;
  std::function<void(int64_t bytes)> on_bytes_;
  std::string line_;  // the last line, if '\r' had to be removed
  bool ends_line_ = true;
  int64_t line_number_ = 0;
  int64_t bytes_told_ = 0;
};

/// Calls `take` for pieces of the text of at most `most` bytes, split after white space, or else
/// between characters.
void for_each_piece(std::string_view text, size_t most,
                    const std::function<void(std::string_view piece)>& take);

/// The line without its '\n' and without any '\r'; `scratch` stores it if there are some.
std::string_view without_line_end(std::string_view line, std::string& scratch);

/// Tokenized documents in flat arrays. Sentence s owns the tokens [sentence_offsets[s],
/// sentence_offsets[s + 1]), document d the sentences [document_offsets[d],
/// document_offsets[d + 1]); none is empty.
struct Documents {
  std::vector<TokenId> token_ids;            // [tokens]
  std::vector<int64_t> sentence_offsets{0};  // [sentences + 1]
  std::vector<int64_t> document_offsets{0};  // [documents + 1]

  int64_t size() const { return static_cast<int64_t>(document_offsets.size()) - 1; }
  int64_t num_sentences() const { return static_cast<int64_t>(sentence_offsets.size()) - 1; }
  int64_t num_tokens() const { return static_cast<int64_t>(token_ids.size()); }
};

/// How a text is written. In both, blank lines separate documents.
enum class TextForm : uint8_t {
  kSentencePerLine,  // as the published text
  kProse,            // the lines of a document are one text, see split_sentences()
};

/// The documents of a text file that has a sentence per line. `on_bytes`: as LineReader's.
///
/// Errors    as LineReader; Error(kData) when the file contains no document.
Documents read_documents(const std::string& path, WordPieceTokenizer& tokenizer,
                         const std::function<void(int64_t bytes)>& on_bytes);

}  // namespace bertha

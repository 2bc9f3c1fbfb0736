#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/prepare/wordpiece.h"

namespace bertha {

/// The longest line that is read as a sentence.
inline constexpr int64_t kMostLineBytes = int64_t{1} << 20;

/// The lines of a UTF-8 text file, without the '\n' that ends them and without any '\r', which
/// TensorFlow's readline leaves out wherever it stands; other line ends do not count.
///
/// Errors    Error(kData) naming file and line: missing or unreadable file, a folder, a named pipe,
///           invalid UTF-8, a zero byte (the published code removes it), a line of more than
///           kMostLineBytes.
class LineReader {
 public:
  /// `on_bytes` hears now and then, and at the end, how many bytes were read since it last heard.
  explicit LineReader(const std::string& path, std::function<void(int64_t bytes)> on_bytes = {});

  /// The next line, valid until the following call; nothing after the last.
  std::optional<std::string_view> next();
  /// Number of the last line, counted from 1.
  int64_t line_number() const { return line_number_; }
  int64_t bytes_read() const { return bytes_read_; }

 private:
  void tell(int64_t least_bytes);

  std::string path_;
  std::ifstream file_;
  std::string line_;  // and room for the longest
  std::function<void(int64_t bytes)> on_bytes_;
  int64_t line_number_ = 0;
  int64_t bytes_read_ = 0;
  int64_t bytes_told_ = 0;
};

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
/// Errors    those of LineReader; Error(kData) when the file holds no document.
Documents read_documents(const std::string& path, WordPieceTokenizer& tokenizer,
                         const std::function<void(int64_t bytes)>& on_bytes);

}  // namespace bertha

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "data/files/hashing.h"

namespace bertha {

/// The result of a decoder: whether a member of the compressed data has ended, or a fault.
struct DecodeStep {
  bool ends_member = false;
  std::string problem = {};
};
/// Decodes some of `input` into `out`, and removes from both what it read and wrote.
using Decoder = std::function<DecodeStep(std::string_view& input, std::span<char>& out)>;

/// The bytes of a file, a pipe or standard input ("-"), from first to last. Data that begin as
/// gzip, xz or Zstandard are decompressed, all members of them, whatever the name says.
///
/// Errors    Error(kData) naming the path: it cannot be opened or read; it is a folder, a ZIP
///           archive (as .docx is), Parquet, PDF or bzip2; compressed data end early or are
///           damaged.
/// Threads   one at a time.
class ByteStream {
 public:
  explicit ByteStream(const std::string& path);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  /// "standard input" for "-".
  const std::string& path() const { return path_; }
  bool is_compressed() const { return decoder_ != nullptr; }
  /// Whether it can be read only once: a pipe, standard input.
  bool is_pipe() const { return is_pipe_; }

  /// The next bytes: fewer than `fewest` only at the end. Valid until the next call.
  std::string_view peek(size_t fewest);
  /// Removes bytes that peek() has given.
  void skip(size_t bytes) { at_ += bytes; }

  /// Bytes read from the file, compressed ones if it is.
  int64_t bytes_read() const { return bytes_read_; }
  /// Hash of these bytes; call it at the end.
  std::string sha256() { return digest_.finish(); }

 private:
  ByteStream() = default;
  bool fill();
  size_t decode(std::span<char> out);

  std::string path_;
  int descriptor_ = -1;
  bool is_pipe_ = false;
  std::string buffer_;
  std::string_view input_;  // undecoded part of the buffer
  Decoder decoder_;
  bool inside_member_ = false;  // a member of compressed data has begun and not ended
  std::string text_;
  size_t at_ = 0;  // start of its unread part
  int64_t bytes_read_ = 0;
  Digest digest_{"SHA256"};
};

}  // namespace bertha

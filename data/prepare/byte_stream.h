#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "data/files/hashing.h"

namespace bertha {

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

  bool is_compressed() const { return decoder_ != nullptr; }
  /// Whether it can be read only once: a pipe, standard input.
  bool is_pipe() const { return is_pipe_; }

  /// The next bytes, which read() gives again: fewer than `most` only at the end. Valid until the
  /// next call.
  std::string_view peek(size_t most);
  /// Fills the front of `out` and returns the number of bytes; 0 at the end.
  size_t read(std::span<char> out);

  /// Bytes read from the file, compressed ones if it is.
  int64_t bytes_read() const { return bytes_read_; }
  /// Hash of these bytes; call it after read() has returned 0.
  std::string sha256() { return digest_.finish(); }

  class Decoder;

 private:
  bool fill();
  size_t decode(std::span<char> out);

  std::string path_;
  int descriptor_ = -1;
  bool is_pipe_ = false;
  std::string buffer_;
  std::string_view input_;  // of the buffer, not yet decoded
  std::unique_ptr<Decoder> decoder_;
  std::string peeked_;
  size_t peeked_at_ = 0;
  int64_t bytes_read_ = 0;
  Digest digest_{"SHA256"};
};

}  // namespace bertha

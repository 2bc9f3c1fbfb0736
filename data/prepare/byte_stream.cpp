#include "data/prepare/byte_stream.h"

#include <fcntl.h>
#include <lzma.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {

/// A format of compressed data.
class ByteStream::Decoder {
 public:
  virtual ~Decoder() = default;

  /// Decodes some of `input`, which it shortens, into `out`, and returns the number of bytes
  /// written. Zero bytes between members are padding. `problem` receives what is wrong.
  size_t step(std::string_view& input, std::span<char> out, std::string& problem) {
    if (!inside_) {
      input.remove_prefix(std::min(input.size(), input.find_first_not_of('\0')));
      if (input.empty()) return 0;
      start_member();
      inside_ = true;
    }
    return decode(input, out, problem);
  }
  /// Whether a member has begun and not ended.
  bool inside() const { return inside_; }

 protected:
  virtual void start_member() = 0;
  virtual size_t decode(std::string_view& input, std::span<char> out, std::string& problem) = 0;
  void end_member() { inside_ = false; }

 private:
  bool inside_ = false;
};

namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;
constexpr uint64_t kMostXzBytes = uint64_t{1} << 30;  // of memory; level 9 needs 65 MiB

class GzipDecoder : public ByteStream::Decoder {
 public:
  GzipDecoder() {
    constexpr int kGzipOnly = 16;
    BERTHA_CHECK(inflateInit2(&state_, kGzipOnly + MAX_WBITS) == Z_OK, "inflateInit2");
  }
  ~GzipDecoder() override { inflateEnd(&state_); }

 protected:
  void start_member() override { inflateReset(&state_); }
  size_t decode(std::string_view& input, std::span<char> out, std::string& problem) override {
    // zlib does not write to it.
    state_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(input.data()));
    state_.avail_in = static_cast<uInt>(input.size());
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out =
        static_cast<uInt>(std::min<size_t>(out.size(), std::numeric_limits<uInt>::max()));
    const uInt room = state_.avail_out;
    const int result = inflate(&state_, Z_NO_FLUSH);
    input.remove_prefix(input.size() - state_.avail_in);
    if (result == Z_STREAM_END) {
      end_member();
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      problem = concat("damaged gzip data: ", state_.msg == nullptr ? "no member" : state_.msg);
    }
    return room - state_.avail_out;
  }

 private:
  z_stream state_{};
};

class XzDecoder : public ByteStream::Decoder {
 public:
  ~XzDecoder() override { lzma_end(&state_); }

 protected:
  void start_member() override {
    BERTHA_CHECK(lzma_stream_decoder(&state_, kMostXzBytes, 0) == LZMA_OK, "lzma_stream_decoder");
  }
  size_t decode(std::string_view& input, std::span<char> out, std::string& problem) override {
    state_.next_in = reinterpret_cast<const uint8_t*>(input.data());
    state_.avail_in = input.size();
    state_.next_out = reinterpret_cast<uint8_t*>(out.data());
    state_.avail_out = out.size();
    const lzma_ret result = lzma_code(&state_, LZMA_RUN);
    input.remove_prefix(input.size() - state_.avail_in);
    if (result == LZMA_STREAM_END) {
      end_member();
    } else if (result == LZMA_MEMLIMIT_ERROR) {
      problem = "xz data that need more than 1 GiB of memory";
    } else if (result != LZMA_OK && result != LZMA_BUF_ERROR) {
      problem = concat("damaged xz data (code ", static_cast<int>(result), " of liblzma)");
    }
    return out.size() - state_.avail_out;
  }

 private:
  lzma_stream state_ = LZMA_STREAM_INIT;
};

class ZstdDecoder : public ByteStream::Decoder {
 public:
  ZstdDecoder() : state_(ZSTD_createDStream(), ZSTD_freeDStream) {
    constexpr int kMostWindowBits = 31;  // of zstd --ultra --long=31
    BERTHA_CHECK(state_ != nullptr, "ZSTD_createDStream");
    ZSTD_DCtx_setParameter(state_.get(), ZSTD_d_windowLogMax, kMostWindowBits);
  }

 protected:
  void start_member() override { ZSTD_DCtx_reset(state_.get(), ZSTD_reset_session_only); }
  size_t decode(std::string_view& input, std::span<char> out, std::string& problem) override {
    ZSTD_inBuffer from{input.data(), input.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t result = ZSTD_decompressStream(state_.get(), &to, &from);
    input.remove_prefix(from.pos);
    if (ZSTD_isError(result) != 0) {
      problem = concat("damaged Zstandard data: ", ZSTD_getErrorName(result));
    } else if (result == 0) {
      end_member();
    }
    return to.pos;
  }

 private:
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> state_;
};

std::unique_ptr<ByteStream::Decoder> decoder_for(std::string_view begin) {
  if (begin.starts_with("\x1f\x8b")) return std::make_unique<GzipDecoder>();
  if (begin.starts_with(std::string_view("\xfd"
                                         "7zXZ\0",
                                         6))) {
    return std::make_unique<XzDecoder>();
  }
  if (begin.starts_with("\x28\xb5\x2f\xfd")) return std::make_unique<ZstdDecoder>();
  return nullptr;
}

/// What a file is that begins so, and what to do with it; "" if it may be text.
const char* foreign_kind(std::string_view begin) {
  if (begin.starts_with("PK\x03\x04")) {
    return "a ZIP archive, as .docx, .xlsx and .epub are; unpack it, or save its text as .txt";
  }
  if (begin.starts_with("PAR1")) {
    return "a Parquet file; write its rows as JSON lines into `bertha data prepare --text -` "
           "(data/README.md has the script)";
  }
  if (begin.starts_with("%PDF-")) return "a PDF; convert it first, for example with pdftotext";
  if (begin.starts_with("BZh") && begin.substr(4).starts_with("1AY")) {
    return "bzip2 data; give them as standard input: bzip2 -dc FILE | bertha ... --text -";
  }
  return "";
}

}  // namespace

ByteStream::ByteStream(const std::string& path)
    : path_(path == "-" ? "standard input" : path), buffer_(kBufferBytes, '\0') {
  struct stat status {};
  // Opening a named pipe would wait for its writer. A shell's <(zcat ...) is a link to a pipe that
  // has one.
  if (path != "-" && ::lstat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode)) {
    fail(ExitCode::kData, path_,
         ": is a named pipe, want a text file; pipe the text into --text -");
  }
  descriptor_ = path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    const int reason = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    fail(ExitCode::kData, path_, ": cannot open: ", std::strerror(reason),
         "; give the path of a readable text file");
  }
  is_pipe_ = path == "-" || !S_ISREG(status.st_mode);
  try {
    if (S_ISDIR(status.st_mode)) fail(ExitCode::kData, path_, ": is a folder, want a text file");
    fill();
    if (const std::string kind = foreign_kind(input_); !kind.empty()) {
      fail(ExitCode::kData, path_, ": is ", kind);
    }
    decoder_ = decoder_for(input_);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

ByteStream::~ByteStream() { ::close(descriptor_); }

/// Reads until there is enough to recognize a format; false at the end.
bool ByteStream::fill() {
  constexpr size_t kFewestBytes = 8;
  size_t size = 0;
  while (size < kFewestBytes) {
    const ssize_t got = ::read(descriptor_, buffer_.data() + size, buffer_.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      fail(ExitCode::kData, path_, ": cannot read beyond byte ", bytes_read_, ": ",
           std::strerror(errno));
    }
    if (got == 0) break;
    size += static_cast<size_t>(got);
    bytes_read_ += got;
  }
  input_ = std::string_view(buffer_).substr(0, size);
  if (is_pipe_) digest_.update(input_);
  return size > 0;
}

size_t ByteStream::decode(std::span<char> out) {
  if (out.empty()) return 0;
  if (decoder_ == nullptr) {
    if (input_.empty() && !fill()) return 0;
    const size_t size = input_.copy(out.data(), out.size());
    input_.remove_prefix(size);
    return size;
  }
  for (;;) {
    std::string problem;
    const size_t size = decoder_->step(input_, out, problem);
    if (!problem.empty()) {
      fail(ExitCode::kData, path_, ": ", problem, "; copy or make the file again");
    }
    if (size > 0) return size;
    if (!input_.empty() || fill()) continue;
    if (decoder_->inside()) {
      fail(ExitCode::kData, path_, ": the compressed data end early, after ", bytes_read_,
           " bytes; the file was cut off: copy or make it again");
    }
    return 0;
  }
}

std::string_view ByteStream::peek(size_t most) {
  peeked_.erase(0, std::exchange(peeked_at_, 0));
  while (peeked_.size() < most) {
    const size_t before = peeked_.size();
    peeked_.resize(std::min(most, before + kBufferBytes));
    const size_t size = decode(std::span(peeked_).subspan(before));
    peeked_.resize(before + size);
    if (size == 0) break;
  }
  return std::string_view(peeked_).substr(0, most);
}

size_t ByteStream::read(std::span<char> out) {
  if (peeked_at_ == peeked_.size()) return decode(out);
  const size_t size = std::string_view(peeked_).copy(out.data(), out.size(), peeked_at_);
  peeked_at_ += size;
  if (peeked_at_ == peeked_.size()) {
    peeked_.clear();
    peeked_at_ = 0;
  }
  return size;
}

}  // namespace bertha

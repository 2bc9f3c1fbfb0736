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
#include <memory>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {

namespace {

constexpr size_t kBufferBytes = size_t{1} << 18;
constexpr uint64_t kMaxXzBytes = uint64_t{1} << 30;  // memory; level 9 needs 65 MiB

Decoder gzip_decoder() {
  constexpr int kGzipOnly = 16;
  const std::shared_ptr<z_stream> state(new z_stream{}, [](z_stream* old) {
    inflateEnd(old);
    delete old;
  });
  BERTHA_CHECK(inflateInit2(state.get(), kGzipOnly + MAX_WBITS) == Z_OK, "inflateInit2");
  return [state](std::string_view& input, std::span<char>& out) -> DecodeStep {
    // zlib does not write to it.
    state->next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(input.data()));
    state->avail_in = static_cast<uInt>(input.size());
    state->next_out = reinterpret_cast<Bytef*>(out.data());
    state->avail_out = static_cast<uInt>(out.size());
    const int result = inflate(state.get(), Z_NO_FLUSH);
    input.remove_prefix(input.size() - state->avail_in);
    out = out.last(state->avail_out);
    if (result == Z_OK || result == Z_BUF_ERROR) return {};
    if (result == Z_STREAM_END) return {.ends_member = inflateReset(state.get()) == Z_OK};
    return {.problem =
                concat("damaged gzip data: ", state->msg == nullptr ? "no member" : state->msg)};
  };
}

Decoder xz_decoder() {
  const std::shared_ptr<lzma_stream> state(new lzma_stream(LZMA_STREAM_INIT), [](lzma_stream* old) {
    lzma_end(old);
    delete old;
  });
  const auto start = [state] {
    BERTHA_CHECK(lzma_stream_decoder(state.get(), kMaxXzBytes, 0) == LZMA_OK,
                 "lzma_stream_decoder");
  };
  start();
  return [state, start](std::string_view& input, std::span<char>& out) -> DecodeStep {
    state->next_in = reinterpret_cast<const uint8_t*>(input.data());
    state->avail_in = input.size();
    state->next_out = reinterpret_cast<uint8_t*>(out.data());
    state->avail_out = out.size();
    const lzma_ret result = lzma_code(state.get(), LZMA_RUN);
    input.remove_prefix(input.size() - state->avail_in);
    out = out.last(state->avail_out);
    if (result == LZMA_OK || result == LZMA_BUF_ERROR) return {};
    if (result == LZMA_STREAM_END) {
      start();
      return {.ends_member = true};
    }
    if (result == LZMA_MEMLIMIT_ERROR) {
      return {.problem = "xz data that need more than 1 GiB of memory"};
    }
    return {.problem = concat("damaged xz data (code ", static_cast<int>(result), " of liblzma)")};
  };
}

Decoder zstd_decoder() {
  constexpr int kMaxWindowBits = 31;  // as with zstd --ultra --long=31
  const std::shared_ptr<ZSTD_DStream> state(ZSTD_createDStream(), ZSTD_freeDStream);
  BERTHA_CHECK(state != nullptr, "ZSTD_createDStream");
  ZSTD_DCtx_setParameter(state.get(), ZSTD_d_windowLogMax, kMaxWindowBits);
  return [state](std::string_view& input, std::span<char>& out) -> DecodeStep {
    ZSTD_inBuffer from{input.data(), input.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    const size_t result = ZSTD_decompressStream(state.get(), &to, &from);
    input.remove_prefix(from.pos);
    out = out.subspan(to.pos);
    if (ZSTD_isError(result) == 0) return {.ends_member = result == 0};
    return {.problem = concat("damaged Zstandard data: ", ZSTD_getErrorName(result))};
  };
}

/// The decoder for data that begin like this; empty if they are not compressed.
Decoder decoder_for(std::string_view begin) {
  using namespace std::string_view_literals;
  if (begin.starts_with("\x1f\x8b")) return gzip_decoder();
  if (begin.starts_with("\xfd\x37zXZ\0"sv)) return xz_decoder();
  if (begin.starts_with("\x28\xb5\x2f\xfd")) return zstd_decoder();
  return nullptr;
}

/// The kind of a file with this beginning, and what to do with it; "" if it may be text.
const char* foreign_kind(std::string_view begin) {
  if (begin.starts_with("PK\x03\x04")) {
    return "a ZIP archive, such as .docx, .xlsx or .epub; unpack it, or save its text as .txt";
  }
  if (begin.starts_with("PAR1")) {
    return "a Parquet file; write its rows as JSON lines into `bertha data prepare --text -` "
           "(data/text.md has the script)";
  }
  if (begin.starts_with("%PDF-")) return "a PDF; convert it first, for example with pdftotext";
  if (begin.starts_with("BZh") && begin.substr(4).starts_with("1AY")) {
    return "bzip2 data; pipe them into standard input: bzip2 -dc FILE | bertha ... --text -";
  }
  return "";
}

}  // namespace

// Delegates, so that the destructor closes the file if the body throws.
ByteStream::ByteStream(const std::string& path) : ByteStream() {
  path_ = path == "-" ? "standard input" : path;
  buffer_.resize(kBufferBytes);
  struct stat status {};
  // Opening a named pipe would wait for its writer. A shell's <(zcat ...) is a link to a pipe that
  // has one.
  if (path != "-" && ::lstat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode)) {
    fail(ExitCode::kData, path_,
         ": is a named pipe, want a text file; pipe the text into --text -");
  }
  descriptor_ = path == "-" ? ::dup(STDIN_FILENO) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    fail(ExitCode::kData, path_, ": cannot open: ", std::strerror(errno),
         "; give the path of a readable text file");
  }
  is_pipe_ = path == "-" || !S_ISREG(status.st_mode);
  if (S_ISDIR(status.st_mode)) fail(ExitCode::kData, path_, ": is a folder, want a text file");
  fill();
  if (const std::string kind = foreign_kind(input_); !kind.empty()) {
    fail(ExitCode::kData, path_, ": is ", kind);
  }
  decoder_ = decoder_for(input_);
}

ByteStream::~ByteStream() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

/// Reads until there is enough to recognize a format; false at the end.
bool ByteStream::fill() {
  constexpr size_t kMinBytes = 8;
  size_t size = 0;
  while (size < kMinBytes) {
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

/// Bytes written to the front of `out`; 0 at the end.
size_t ByteStream::decode(std::span<char> out) {
  if (decoder_ == nullptr) {
    if (input_.empty() && !fill()) return 0;
    const size_t size = input_.copy(out.data(), out.size());
    input_.remove_prefix(size);
    return size;
  }
  for (;;) {
    if (!inside_member_) {  // zero bytes between members are padding
      input_.remove_prefix(std::min(input_.size(), input_.find_first_not_of('\0')));
      inside_member_ = !input_.empty();
    }
    if (inside_member_) {
      std::span<char> left = out;
      const DecodeStep step = decoder_(input_, left);
      if (!step.problem.empty()) {
        fail(ExitCode::kData, path_, ": ", step.problem, "; copy or write the file again");
      }
      inside_member_ = !step.ends_member;
      if (left.size() < out.size()) return out.size() - left.size();
    }
    if (!input_.empty() || fill()) continue;
    if (!inside_member_) return 0;
    fail(ExitCode::kData, path_, ": the compressed data end early, after ", bytes_read_,
         " bytes: the file is truncated; copy or write it again");
  }
}

std::string_view ByteStream::peek(size_t fewest) {
  if (text_.size() - at_ < fewest) text_.erase(0, std::exchange(at_, 0));
  while (text_.size() - at_ < fewest) {
    const size_t before = text_.size();
    text_.resize(before + kBufferBytes);
    const size_t size = decode(std::span(text_).subspan(before));
    text_.resize(before + size);
    if (size == 0) break;
  }
  return std::string_view(text_).substr(at_);
}

}  // namespace bertha

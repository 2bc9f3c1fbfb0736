#include "data/convert/tfrecord_file.h"

#include <algorithm>
#include <string_view>

#include "data/files/hashing.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kHeaderBytes = 12;  // length and its checksum
constexpr int64_t kFooterBytes = 4;
constexpr int64_t kWindowBytes = int64_t{1} << 20;
// A sample has some kilobytes; a greater length is damage, even if its checksum is right.
constexpr int64_t kMaxRecordBytes = int64_t{64} << 20;

}  // namespace

uint32_t masked_crc32c(std::span<const std::byte> bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  return masked_crc32c(crc32c(std::string_view(text, bytes.size())));
}

TfRecordFile::TfRecordFile(const std::string& path) : path_(path), file_(path) {}

void TfRecordFile::seek(int64_t record, int64_t offset_bytes) {
  record_ = record;
  offset_bytes_ = offset_bytes;
}

void TfRecordFile::damaged(const std::string& what) const {
  fail(ExitCode::kData, path_, ": record ", record_, " at byte ", offset_bytes_, ": ", what,
       "; the file is damaged, copy or write it again");
}

void TfRecordFile::wrong_record(const std::string& what) const {
  fail(ExitCode::kData, path_, ": record ", record_ - 1, ": ", what);
}

std::span<const std::byte> TfRecordFile::read(int64_t offset_bytes, int64_t size_bytes) {
  if (size_bytes > file_.size_bytes() - offset_bytes) {
    damaged(concat("needs the bytes up to ", offset_bytes + size_bytes, ", but the file ends at ",
                   file_.size_bytes()));
  }
  const int64_t window_end = window_offset_bytes_ + std::ssize(window_);
  if (offset_bytes < window_offset_bytes_ || offset_bytes + size_bytes > window_end) {
    const int64_t wanted =
        std::min(std::max(size_bytes, kWindowBytes), file_.size_bytes() - offset_bytes);
    window_.resize(static_cast<size_t>(wanted));
    window_offset_bytes_ = offset_bytes;
    const std::string problem = file_.read_at(offset_bytes, window_);
    if (!problem.empty()) damaged(problem);
  }
  return std::span(window_).subspan(static_cast<size_t>(offset_bytes - window_offset_bytes_),
                                    static_cast<size_t>(size_bytes));
}

int64_t TfRecordFile::read_length() {
  const std::span<const std::byte> header = read(offset_bytes_, kHeaderBytes);
  if (load<uint32_t>(header.data() + 8) != masked_crc32c(header.first(8))) {
    const bool gzip = offset_bytes_ == 0 && load<uint16_t>(header.data()) == 0x8b1f;
    if (gzip) {
      fail(ExitCode::kData, path_, ": is compressed with gzip; decompress it first");
    }
    if (offset_bytes_ == 0) {
      fail(ExitCode::kData, path_,
           ": is not a TFRecord file, or is damaged: the checksum of its first length is wrong");
    }
    damaged("the checksum of its length is wrong");
  }
  const auto length = load<int64_t>(header.data());
  if (length < 0 || length > kMaxRecordBytes) {
    damaged(
        concat("has ", static_cast<uint64_t>(length), " bytes, want at most ", kMaxRecordBytes));
  }
  return length;
}

std::span<const std::byte> TfRecordFile::next() {
  const int64_t length = read_length();
  const auto whole = read(offset_bytes_, kHeaderBytes + length + kFooterBytes);
  const auto bytes = whole.subspan(kHeaderBytes, static_cast<size_t>(length));
  if (load<uint32_t>(bytes.data() + length) != masked_crc32c(bytes)) {
    damaged("the checksum of its contents is wrong");
  }
  offset_bytes_ += kHeaderBytes + length + kFooterBytes;
  ++record_;
  return bytes;
}

void TfRecordFile::skip() {
  const int64_t end = offset_bytes_ + kHeaderBytes + read_length() + kFooterBytes;
  if (end > file_.size_bytes()) {
    damaged(concat("needs the bytes up to ", end, ", but the file ends at ", file_.size_bytes()));
  }
  offset_bytes_ = end;
  ++record_;
}

}  // namespace bertha

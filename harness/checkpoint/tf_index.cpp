#include "harness/checkpoint/tf_index.h"

#include <google/protobuf/io/coded_stream.h>

#include <climits>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "data/files/byte_file.h"
#include "data/files/hashing.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

// LevelDB's own reader is not used because it trusts the lengths that entries and blocks state, and
// reads or allocates beyond them.

using Bytes = google::protobuf::io::CodedInputStream;

constexpr size_t kFooterBytes = 48;
constexpr size_t kHandleBytes = 40;  // two padded handles in the footer, before its magic number
constexpr uint64_t kMagic = 0xdb4775248b80fb57;
constexpr size_t kTrailerBytes = 5;  // after a block: its type of compression and its checksum

Bytes bytes_in(std::string_view text) {
  return Bytes(reinterpret_cast<const uint8_t*>(text.data()), static_cast<int>(text.size()));
}

template <class T>
T last_of(std::string_view text) {
  return load<T>(reinterpret_cast<const std::byte*>(text.data() + text.size() - sizeof(T)));
}

/// The place of a block, without its trailer.
struct BlockHandle {
  uint64_t offset = 0;
  uint64_t bytes = 0;

  /// Returns false at the end of the bytes.
  bool read(Bytes& from) { return from.ReadVarint64(&offset) && from.ReadVarint64(&bytes); }
};

class IndexFile {
 public:
  explicit IndexFile(const std::string& path) : path_(path), file_(path) {}

  std::map<std::string, std::string> entries() const {
    std::map<std::string, std::string> found;
    uint64_t end = 0;
    for_each_entry(index_block(), [&](const std::string&, const std::string& place) {
      Bytes from = bytes_in(place);
      BlockHandle handle;
      if (!handle.read(from)) refuse("the place of a block is missing");
      // Otherwise a small file could list one block endlessly.
      if (handle.offset < end) refuse("its blocks overlap");
      for_each_entry(block(handle),
                     [&](const std::string& key, const std::string& value) { found[key] = value; });
      end = handle.offset + handle.bytes;
    });
    return found;
  }

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    fail(ExitCode::kData, path_, ": cannot be read as the index of a TensorFlow checkpoint (", why,
         "); the file is damaged or of another format, copy it again.");
  }

  std::string read(uint64_t offset, uint64_t bytes) const {
    const auto size = static_cast<uint64_t>(file_.size_bytes());
    if (bytes > INT_MAX || bytes > size || offset > size - bytes) {
      refuse("a block lies outside the file");
    }
    std::string text(bytes, '\0');
    const std::string why =
        file_.read_at(static_cast<int64_t>(offset), std::as_writable_bytes(std::span(text)));
    if (!why.empty()) refuse(why);
    return text;
  }

  std::string block(const BlockHandle& handle) const {
    if (handle.bytes > INT_MAX) refuse("a block lies outside the file");
    std::string text = read(handle.offset, handle.bytes + kTrailerBytes);
    const auto checksum = last_of<uint32_t>(text);
    text.resize(text.size() - sizeof(checksum));
    if (masked_crc32c(crc32c(text)) != checksum) refuse("a block has another checksum");
    if (text.back() != 0) refuse("it is compressed, as TensorFlow before 1.2 wrote it");
    text.pop_back();
    return text;
  }

  std::string index_block() const {
    const auto size = static_cast<uint64_t>(file_.size_bytes());
    if (size < kFooterBytes) refuse("it is too short");
    const std::string footer = read(size - kFooterBytes, kFooterBytes);
    if (last_of<uint64_t>(footer) != kMagic) refuse("its last bytes are not those of an index");
    Bytes handles = bytes_in(std::string_view(footer).substr(0, kHandleBytes));
    BlockHandle handle;
    // The first handle points to a block about the table, which TensorFlow leaves empty.
    if (!handle.read(handles) || !handle.read(handles)) refuse("its last bytes are damaged");
    return block(handle);
  }

  /// Calls use(key, value). A key shares its first bytes with the previous one; the offsets of keys
  /// that share none are at the end, followed by their number.
  template <class Use>
  void for_each_entry(const std::string& block, const Use& use) const {
    const size_t words = block.size() / sizeof(uint32_t);
    if (words == 0 || last_of<uint32_t>(block) > words - 1) refuse("a block is damaged");
    const size_t end = block.size() - (last_of<uint32_t>(block) + size_t{1}) * sizeof(uint32_t);
    Bytes from = bytes_in(std::string_view(block).substr(0, end));
    std::string key;
    while (static_cast<size_t>(from.CurrentPosition()) < end) {
      uint32_t shared = 0;
      uint32_t more = 0;
      uint32_t value_bytes = 0;
      std::string rest;
      std::string value;
      if (!from.ReadVarint32(&shared) || !from.ReadVarint32(&more) ||
          !from.ReadVarint32(&value_bytes) || shared > key.size() ||
          !from.ReadString(&rest, static_cast<int>(more)) ||
          !from.ReadString(&value, static_cast<int>(value_bytes))) {
        refuse("an entry is damaged");
      }
      key.replace(shared, std::string::npos, rest);
      use(key, value);
    }
  }

  std::string path_;
  ByteFile file_;
};

}  // namespace

std::map<std::string, std::string> read_tf_index(const std::string& path) {
  if (!std::filesystem::exists(path)) {
    fail(ExitCode::kData, path, ": no such file; copy it next to the data files.");
  }
  return IndexFile(path).entries();
}

}  // namespace bertha

#include "harness/checkpoint/tf_bundle.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "data/files/hashing.h"
#include "harness/checkpoint/proto_wire.h"
#include "harness/checkpoint/tf_index.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

// Numbers of the fields in tensor_bundle.proto, versions.proto and tensor_shape.proto.
namespace header_field {
constexpr uint32_t kNumShards = 1, kEndianness = 2, kVersion = 3;
}
namespace version_field {
constexpr uint32_t kMinConsumer = 2;
}
namespace entry_field {
constexpr uint32_t kDtype = 1, kShape = 2, kShard = 3, kOffset = 4, kSize = 5, kCrc = 6,
                   kSlices = 7;
}
namespace shape_field {
constexpr uint32_t kDim = 2;
}
namespace dim_field {
constexpr uint32_t kSize = 1;
}

constexpr uint64_t kNewestVersion = 1;  // of the format, that we read
constexpr int64_t kMostShards = 99999;  // five digits in the names

/// types.proto: number, our word.
constexpr std::array<std::pair<uint64_t, const char*>, 9> kDtypes = {{{1, "F32"},
                                                                      {2, "F64"},
                                                                      {3, "I32"},
                                                                      {4, "U8"},
                                                                      {7, "STRING"},
                                                                      {9, "I64"},
                                                                      {10, "BOOL"},
                                                                      {14, "BF16"},
                                                                      {19, "F16"}}};

std::string dtype_word(uint64_t number) {
  for (const auto& [known, word] : kDtypes) {
    if (known == number) return word;
  }
  return concat("TensorFlow type ", number);
}

struct Header {
  uint64_t num_shards = 0;
  uint64_t endianness = 0;  // 0 = little
  uint64_t min_consumer = 0;
};

Header parse_header(const std::string& message, const std::string& origin) {
  Header header;
  for (ProtoReader reader(message, origin); reader.next();) {
    if (reader.field() == header_field::kNumShards) header.num_shards = reader.number();
    if (reader.field() == header_field::kEndianness) header.endianness = reader.number();
    if (reader.field() == header_field::kVersion) {
      for (ProtoReader version(reader.bytes(), origin); version.next();) {
        if (version.field() == version_field::kMinConsumer) header.min_consumer = version.number();
      }
    }
  }
  return header;
}

std::vector<int64_t> parse_shape(std::string_view message, const std::string& origin) {
  std::vector<int64_t> shape;
  for (ProtoReader reader(message, origin); reader.next();) {
    if (reader.field() != shape_field::kDim) continue;
    int64_t size = 0;
    for (ProtoReader dim(reader.bytes(), origin); dim.next();) {
      if (dim.field() == dim_field::kSize) size = static_cast<int64_t>(dim.number());
    }
    shape.push_back(size);
  }
  return shape;
}

TfTensor parse_entry(const std::string& message, const std::string& origin) {
  TfTensor tensor;
  for (ProtoReader reader(message, origin); reader.next();) {
    switch (reader.field()) {
      case entry_field::kDtype:
        tensor.dtype = dtype_word(reader.number());
        break;
      case entry_field::kShape:
        tensor.shape = parse_shape(reader.bytes(), origin);
        break;
      case entry_field::kShard:
        tensor.shard = static_cast<int64_t>(reader.number());
        break;
      case entry_field::kOffset:
        tensor.offset_bytes = static_cast<int64_t>(reader.number());
        break;
      case entry_field::kSize:
        tensor.size_bytes = static_cast<int64_t>(reader.number());
        break;
      case entry_field::kCrc:
        tensor.crc = static_cast<uint32_t>(reader.number());
        break;
      case entry_field::kSlices:
        tensor.sliced = true;
        break;
      default:
        break;
    }
  }
  return tensor;
}

[[noreturn]] void refuse_crc(const std::string& path, const std::string& key) {
  fail(ExitCode::kData, path, ": the bytes of ", key,
       " have another checksum than the index says; the file is damaged, copy it again.");
}

}  // namespace

TfBundle::TfBundle(const std::string& prefix) : prefix_(prefix) {
  const std::string path = prefix + ".index";
  const std::map<std::string, std::string> entries = read_tf_index(path);
  const auto header_entry = entries.find("");  // the empty key comes first
  if (header_entry == entries.end()) {
    fail(
        ExitCode::kData, path,
        ": is a table without the header of a TensorFlow checkpoint; name the .index file of one.");
  }
  const Header header = parse_header(header_entry->second, path + ": its header");
  if (header.endianness != 0) {
    fail(ExitCode::kData, path,
         ": was written on a big-endian machine; save it again on a little-endian one.");
  }
  if (header.min_consumer > kNewestVersion) {
    fail(ExitCode::kData, path, ": wants a reader of format version ", header.min_consumer,
         ", this one knows ", kNewestVersion, "; save it with an earlier TensorFlow.");
  }
  num_shards_ = static_cast<int64_t>(header.num_shards);
  if (num_shards_ < 1 || num_shards_ > kMostShards) {
    fail(ExitCode::kData, path, ": names ", num_shards_, " data files, want 1 to ", kMostShards,
         "; the file is damaged, copy it again.");
  }
  for (const auto& [key, message] : entries) {
    if (key.empty() || key.front() == '\0') continue;  // the header; the parts of sliced tensors
    const std::string origin = path + ": the entry of " + key;
    TfTensor tensor = parse_entry(message, origin);
    const bool sound = tensor.shard >= 0 && tensor.shard < num_shards_ &&
                       tensor.offset_bytes >= 0 && tensor.size_bytes >= 0;
    if (!sound) {
      fail(ExitCode::kData, origin, " points outside of the ", num_shards_,
           " data files; the file is damaged, copy it again.");
    }
    tensors_[key] = std::move(tensor);
  }
}

std::string TfBundle::shard_path(int64_t shard) const {
  std::array<char, 32> suffix{};
  std::snprintf(suffix.data(), suffix.size(), ".data-%05d-of-%05d", static_cast<int>(shard),
                static_cast<int>(num_shards_));
  return prefix_ + suffix.data();
}

std::string TfBundle::read_range(const std::string& key, const TfTensor& tensor) const {
  const std::string path = shard_path(tensor.shard);
  if (tensor.sliced) {
    fail(ExitCode::kData, prefix_, ": ", key,
         " is saved in slices; save the model without a partitioner.");
  }
  std::error_code error;
  const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error) {
    fail(ExitCode::kData, path, ": cannot be opened (", error.message(),
         "), and the index names it; copy all ", num_shards_, " data files.");
  }
  if (tensor.offset_bytes > file_bytes || tensor.size_bytes > file_bytes - tensor.offset_bytes) {
    fail(ExitCode::kData, path, ": has ", file_bytes, " bytes, and ", key, " takes ",
         tensor.size_bytes, " from byte ", tensor.offset_bytes,
         "; the file is cut short, copy it again.");
  }
  std::string bytes(static_cast<size_t>(tensor.size_bytes), '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(tensor.offset_bytes);
  file.read(bytes.data(), tensor.size_bytes);
  if (!file) fail(ExitCode::kData, path, ": cannot be read at ", key, "; check the disk.");
  return bytes;
}

std::string TfBundle::read(const std::string& key) const {
  const TfTensor& tensor = tensors_.at(key);
  std::string bytes = read_range(key, tensor);
  if (masked_crc32c(crc32c(bytes)) != tensor.crc) refuse_crc(shard_path(tensor.shard), key);
  return bytes;
}

std::string TfBundle::read_string(const std::string& key) const {
  const TfTensor& tensor = tensors_.at(key);
  const std::string path = shard_path(tensor.shard);
  const std::string bytes = read_range(key, tensor);
  // One varint with the length, the masked checksum of the lengths as numbers, then the text. The
  // entry's checksum runs over the length as a number, that checksum and the text.
  std::string_view rest = bytes;
  uint64_t length = 0;
  constexpr size_t kCrcBytes = 4;
  if (!take_varint(rest, length) || rest.size() < kCrcBytes || rest.size() - kCrcBytes != length) {
    fail(ExitCode::kData, path, ": ", key, " is no single string; the file is damaged.");
  }
  const auto short_length = static_cast<uint32_t>(length);
  const bool is_short = short_length == length;
  const std::string_view number(is_short ? reinterpret_cast<const char*>(&short_length)
                                         : reinterpret_cast<const char*>(&length),
                                is_short ? sizeof(short_length) : sizeof(length));
  const uint32_t lengths_crc = crc32c(number);
  const uint32_t masked = masked_crc32c(lengths_crc);
  const std::string_view stored = rest.substr(0, kCrcBytes);
  const std::string_view text = rest.substr(kCrcBytes);
  const bool lengths_agree = std::memcmp(&masked, stored.data(), kCrcBytes) == 0;
  if (!lengths_agree || masked_crc32c(crc32c(text, crc32c(stored, lengths_crc))) != tensor.crc) {
    refuse_crc(path, key);
  }
  return std::string(text);
}

}  // namespace bertha

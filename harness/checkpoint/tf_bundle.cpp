#include "harness/checkpoint/tf_bundle.h"

#include <data/files/tensorflow.pb.h>
#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "data/files/hashing.h"
#include "harness/checkpoint/tf_index.h"
#include "harness/checkpoint/weight_source.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int32_t kNewestVersion = 1;  // newest version of the format that is supported
constexpr int64_t kMaxShards = 99999;  // five digits in the names

/// types.proto: number and our name.
constexpr std::pair<int32_t, const char*> kDtypes[] = {{1, "F32"},   {2, "F64"},    {3, "I32"},
                                                       {4, "U8"},    {7, "STRING"}, {9, "I64"},
                                                       {10, "BOOL"}, {14, "BF16"},  {19, "F16"}};

std::string dtype_word(int32_t number) {
  for (const auto& [known, word] : kDtypes) {
    if (known == number) return word;
  }
  return concat("TensorFlow type ", number);
}

template <class Message>
Message parsed(const std::string& bytes, const std::string& origin) {
  Message message;
  if (!message.ParseFromString(bytes)) {
    fail(ExitCode::kData, origin, ": cannot be read; the file is damaged, copy it again.");
  }
  return message;
}

TfTensor tensor_of(const tf::BundleEntry& entry) {
  TfTensor tensor{.dtype = dtype_word(entry.dtype()),
                  .shape = {},
                  .shard = entry.shard_id(),
                  .offset_bytes = entry.offset(),
                  .size_bytes = entry.size(),
                  .crc = entry.crc32c(),
                  .sliced = entry.slices_size() > 0};
  for (const tf::TensorShape::Dim& dim : entry.shape().dim()) tensor.shape.push_back(dim.size());
  return tensor;
}

/// Whether the number of elements, and of the elements in any dimensions, fits into 64 bits.
bool has_elements(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t extent : shape) {
    const int64_t factor = std::max<int64_t>(extent, 1);
    if (extent < 0 || __builtin_mul_overflow(product, factor, &product)) return false;
  }
  return true;
}

[[noreturn]] void refuse_crc(const std::string& path, const std::string& key) {
  fail(ExitCode::kData, path, ": the bytes of ", key,
       " have another checksum than in the index; the file is damaged, copy it again.");
}

}  // namespace

TfBundle::TfBundle(const std::string& prefix) : prefix_(prefix) {
  const std::string path = prefix + ".index";
  const std::map<std::string, std::string> entries = read_tf_index(path);
  const auto header_entry = entries.find("");  // the empty key comes first
  if (header_entry == entries.end()) {
    fail(
        ExitCode::kData, path,
        ": is a table without the header of a TensorFlow checkpoint; give the .index file of one.");
  }
  const auto header = parsed<tf::BundleHeader>(header_entry->second, path + ": its header");
  if (header.endianness() != 0) {
    fail(ExitCode::kData, path,
         ": was written on a big-endian machine; save it again on a little-endian one.");
  }
  if (header.version().min_consumer() > kNewestVersion) {
    fail(ExitCode::kData, path, ": has format version ", header.version().min_consumer(),
         ", want at most ", kNewestVersion, "; save it with an earlier TensorFlow.");
  }
  num_shards_ = header.num_shards();
  if (num_shards_ < 1 || num_shards_ > kMaxShards) {
    fail(ExitCode::kData, path, ": lists ", num_shards_, " data files, want 1 to ", kMaxShards,
         "; the file is damaged, copy it again.");
  }
  for (const auto& [key, message] : entries) {
    if (key.empty() || key.front() == '\0') continue;  // the header; the parts of sliced tensors
    const std::string origin = path + ": the entry of " + key;
    TfTensor tensor = tensor_of(parsed<tf::BundleEntry>(message, origin));
    if (!has_elements(tensor.shape)) {
      fail(ExitCode::kData, origin, " states the shape ", shape_text(tensor.shape),
           ", want extents whose product fits into 64 bits; the file is damaged, copy it again.");
    }
    const bool sound = tensor.shard >= 0 && tensor.shard < num_shards_ &&
                       tensor.offset_bytes >= 0 && tensor.size_bytes >= 0;
    if (!sound) {
      fail(ExitCode::kData, origin, " points outside the ", num_shards_,
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
         "), but the index lists it; copy all ", num_shards_, " data files.");
  }
  if (tensor.offset_bytes > file_bytes || tensor.size_bytes > file_bytes - tensor.offset_bytes) {
    fail(ExitCode::kData, path, ": has ", file_bytes, " bytes, but ", key, " needs ",
         tensor.size_bytes, " from byte ", tensor.offset_bytes,
         "; the file is truncated, copy it again.");
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
  // entry's checksum covers the length as a number, that checksum and the text.
  constexpr size_t kMaxVarintBytes = 10;
  google::protobuf::io::CodedInputStream stream(
      reinterpret_cast<const uint8_t*>(bytes.data()),
      static_cast<int>(std::min(bytes.size(), kMaxVarintBytes)));
  uint64_t length = 0;
  constexpr size_t kCrcBytes = 4;
  const bool has_length = stream.ReadVarint64(&length);
  const auto rest = std::string_view(bytes).substr(static_cast<size_t>(stream.CurrentPosition()));
  if (!has_length || rest.size() < kCrcBytes || rest.size() - kCrcBytes != length) {
    fail(ExitCode::kData, path, ": ", key,
         " is not a single string; the file is damaged, copy it again.");
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

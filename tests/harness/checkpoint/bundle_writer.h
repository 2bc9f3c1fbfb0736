#pragma once

#include <leveldb/env.h>
#include <leveldb/options.h>
#include <leveldb/table_builder.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/files/hashing.h"
#include "kernels/base/error.h"

namespace bertha::testing {

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}
inline std::string number_field(uint32_t field, uint64_t value) {
  return varint(field << 3) + varint(value);
}
inline std::string bytes_field(uint32_t field, const std::string& bytes) {
  return varint((field << 3) | 2) + varint(bytes.size()) + bytes;
}
inline std::string fixed32_field(uint32_t field, uint32_t value) {
  return varint((field << 3) | 5) + std::string(reinterpret_cast<const char*>(&value), 4);
}

/// What one entry of a TensorFlow checkpoint says; tests bend single fields.
struct BundleEntry {
  uint64_t dtype = 1;  // DT_FLOAT
  std::vector<int64_t> shape;
  uint64_t shard = 0;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
  uint32_t crc = 0;
  bool sliced = false;

  std::string message() const {
    std::string dims;
    for (const int64_t extent : shape) {
      dims += bytes_field(2, number_field(1, static_cast<uint64_t>(extent)));
    }
    std::string text = number_field(1, dtype) + bytes_field(2, dims);
    if (shard != 0) text += number_field(3, shard);  // as protobuf leaves zeros out
    if (offset_bytes != 0) text += number_field(4, offset_bytes);
    text += number_field(5, size_bytes) + fixed32_field(6, crc);
    if (sliced) text += bytes_field(7, "");
    return text;
  }
};

/// A sorted table of such entries, as TensorFlow writes an index.
inline void write_tf_index(const std::string& path,
                           const std::map<std::string, std::string>& entries,
                           leveldb::CompressionType compression = leveldb::kNoCompression) {
  leveldb::WritableFile* opened = nullptr;
  BERTHA_CHECK(leveldb::Env::Default()->NewWritableFile(path, &opened).ok(), path);
  const std::unique_ptr<leveldb::WritableFile> file(opened);
  leveldb::Options options;
  options.compression = compression;
  leveldb::TableBuilder table(options, file.get());
  for (const auto& [key, value] : entries) table.Add(key, value);
  BERTHA_CHECK(table.Finish().ok() && file->Close().ok(), path);
}

inline std::string bundle_header(uint64_t shards, uint64_t endianness = 0,
                                 uint64_t min_consumer = 0) {
  return number_field(1, shards) + number_field(2, endianness) +
         bytes_field(3, number_field(1, 1) + number_field(2, min_consumer));
}

/// A checkpoint of format V2 with one data file, to be written after tests have bent it.
struct BundleDraft {
  std::map<std::string, BundleEntry> entries;
  std::string header = bundle_header(1);
  std::string data;

  void add(const std::string& name, const std::vector<int64_t>& shape,
           const std::vector<float>& values) {
    const std::string bytes(reinterpret_cast<const char*>(values.data()), 4 * values.size());
    entries[name] = {.shape = shape,
                     .offset_bytes = data.size(),
                     .size_bytes = bytes.size(),
                     .crc = masked_crc32c(crc32c(bytes))};
    data += bytes;
  }

  void write(const std::string& prefix) const {
    std::map<std::string, std::string> messages = {{"", header}};
    for (const auto& [name, entry] : entries) messages[name] = entry.message();
    write_tf_index(prefix + ".index", messages);
    std::ofstream(prefix + ".data-00000-of-00001", std::ios::binary) << data;
  }
};

}  // namespace bertha::testing

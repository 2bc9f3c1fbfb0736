#pragma once

#include <data/files/tensorflow.pb.h>
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

/// A sorted table of entries, as TensorFlow writes an index.
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

inline std::string bundle_header(int32_t shards, int32_t endianness = 0, int32_t min_consumer = 0) {
  tf::BundleHeader header;
  header.set_num_shards(shards);
  header.set_endianness(endianness);
  header.mutable_version()->set_min_consumer(min_consumer);
  return header.SerializeAsString();
}

/// A checkpoint of format V2 with one data file, to be written after tests have changed it.
struct BundleDraft {
  std::map<std::string, tf::BundleEntry> entries;
  std::string header = bundle_header(1);
  std::string data;

  void add(const std::string& name, const std::vector<int64_t>& shape,
           const std::vector<float>& values) {
    const std::string bytes(reinterpret_cast<const char*>(values.data()), 4 * values.size());
    tf::BundleEntry entry;
    entry.set_dtype(1);  // DT_FLOAT
    for (const int64_t extent : shape) entry.mutable_shape()->add_dim()->set_size(extent);
    entry.set_offset(std::ssize(data));
    entry.set_size(std::ssize(bytes));
    entry.set_crc32c(masked_crc32c(crc32c(bytes)));
    entries[name] = entry;
    data += bytes;
  }

  void write(const std::string& prefix) const {
    std::map<std::string, std::string> messages = {{"", header}};
    for (const auto& [name, entry] : entries) messages[name] = entry.SerializeAsString();
    write_tf_index(prefix + ".index", messages);
    std::ofstream(prefix + ".data-00000-of-00001", std::ios::binary) << data;
  }
};

}  // namespace bertha::testing

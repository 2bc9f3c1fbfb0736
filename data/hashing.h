#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "data/sample.h"

namespace bertha {

/// 128-bit XXH3 of a file's bytes as 32 hex digits. Error(kData) when it cannot be read.
std::string xxh3_of_file(const std::string& path);
/// SHA-256 of a file's bytes as 64 hex digits.
std::string sha256_of_file(const std::string& path);
std::string md5_of_text(const std::string& text);
/// CRC-32C of bytes that follow others, whose checksum is `before` (0: none).
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);
/// How the formats of TensorFlow and LevelDB store a CRC-32C.
uint32_t masked_crc32c(uint32_t crc);

/// The official checksum of a shard: md5 of the Python repr of the list of per-row md5 digests,
/// each of the Python repr of the row's token ids ("[101, 2023, ...]"). Hashes token ids only. A
/// row is a sample, or with the row_offsets of a packed shard (shard_reader.h) a pack.
std::string md5_of_lists(const SampleSet& samples, std::span<const int64_t> row_offsets = {});

}  // namespace bertha

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/sample.h"

namespace bertha {

/// 128-bit XXH3 of a file's bytes as 32 hex digits. Error(kData) when it cannot be read.
std::string xxh3_of_file(const std::string& path);
/// SHA-256 of a file's bytes as 64 hex digits.
std::string sha256_of_file(const std::string& path);
std::string md5_of_text(const std::string& text);

/// The official checksum of a shard: md5 of the Python repr of the list of per-row md5 digests,
/// each of the Python repr of the row's token ids ("[101, 2023, ...]"). Hashes token ids only. A
/// row is a sample, or with the row_offsets of a packed shard (shard_reader.h) a pack.
std::string md5_of_lists(const SampleSet& samples, std::span<const int64_t> row_offsets = {});

}  // namespace bertha

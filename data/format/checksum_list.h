#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/format/manifest.h"

namespace bertha {

/// The official checksum of a shard: md5 of the Python repr of the list of per-row md5 digests,
/// each of the Python repr of the row's token ids ("[101, 2023, ...]"). Hashes token ids only. A
/// row is a sample, or with the row_offsets of a packed shard (shard_reader.h) a pack.
std::string md5_of_lists(const SampleSet& samples, std::span<const int64_t> row_offsets = {});

/// A published checksum list: per line the name of a shard, a tab, and the official checksum of its
/// token ids (md5_of_lists()).
struct ChecksumList {
  std::string path;
  std::map<std::string, std::string> md5_of_stem;  // by the shard's name without its ending

  /// The checksum of a shard in the list, whatever its ending (.hdf, .hdf5 or none), in which
  /// published lists and files differ. Empty if the list lacks the shard.
  std::string md5_of(const std::string& shard_name) const;
};

/// Errors    Error(kData) naming the file, the line and the fault.
ChecksumList read_checksum_list(const std::string& path);

/// What to say when a list contains none of the shards, for example because it describes another
/// number of shards; empty when it contains some.
std::string unrelated_list(const ChecksumList& list, std::span<const std::string> shard_names);

/// A difference between shards and a list: of one shard, or of all shards that are not in the list
/// or only in the list.
struct ChecksumDifference {
  enum class Kind : uint8_t { kOtherTokens, kUnknown, kMissing };
  Kind kind = Kind::kOtherTokens;
  std::string shard;  // or the first names of several
  std::string what;

  std::string text() const { return shard + ": " + what; }
};
std::vector<ChecksumDifference> compare_checksums(const ChecksumList& list,
                                                  const std::vector<ManifestShard>& shards);

/// Writes such a list, appearing whole or not at all.
void write_checksum_list(const std::string& path, const std::vector<ManifestShard>& shards);

inline constexpr const char* kChecksumListName = "checksums.chk";

}  // namespace bertha

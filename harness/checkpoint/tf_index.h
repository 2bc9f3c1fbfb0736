#pragma once

#include <map>
#include <string>

namespace bertha {

/// All entries of a checkpoint's `.index` file, which is a sorted table in LevelDB's format: blocks
/// with prefix-compressed keys, each with a checksum.
///
/// Errors    Error(kData) naming the file: missing, truncated, another format, a checksum that
///           differs, blocks compressed with Snappy, which TensorFlow has not written since 1.2.
std::map<std::string, std::string> read_tf_index(const std::string& path);

}  // namespace bertha

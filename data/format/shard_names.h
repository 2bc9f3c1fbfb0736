#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace bertha {

/// The name of a file of a numbered set: part_00007_of_04320.hdf5, part-00007-of-00500, part_00007.
struct NumberedName {
  std::string before;      // "part_"
  std::string number;      // "00007"
  std::string of = {};     // "_of_", "-of-", or empty: the name does not state the number of files
  std::string count = {};  // "04320"
  std::string after = {};  // ".hdf5"
};
std::optional<NumberedName> numbered_name(const std::string& name);

/// Whether a file of this name is a shard: any name with "part" that ends in .hdf5 or .hdf; and as
/// the published packer names them, part_00007 or part_00007_of_04320. Texts and TFRecords,
/// part-00007-of-00500, are not shards.
bool is_shard_name(const std::string& name);

/// The shards of a data folder, sorted by name: files whose name contains "part" and ends in
/// .hdf5 or .hdf, or is part_N or part_N_of_S without an ending (or the file itself when `path` is
/// a file). If no name contains "part": those with "training", otherwise those with "test", as
/// NVIDIA's DeepLearningExamples name shards. Error(kData) when there is none.
std::vector<std::string> list_shards(const std::string& path);

/// "part_00007_of_04320.hdf5".
std::string shard_name(int64_t index, int64_t count);
std::vector<std::string> shard_names(int64_t count);

/// The published sizes: with nominal = ceil(N / S), the first S * nominal - N shards hold
/// nominal - 1 samples, the others nominal. Error(kData) if there are fewer samples than shards.
std::vector<int64_t> shard_sizes(int64_t num_samples, int64_t num_shards);

/// The missing files of a numbered set, judging by the names of the existing ones:
/// part_00007_of_04320.hdf5 and part-00007-of-00500 state the number of files, part_00007 only
/// implies one for every smaller number. Other names imply nothing.
std::vector<std::string> missing_of_numbered(std::span<const std::string> names);

/// What to do about files that a numbered set lacks.
enum class MissingFiles : uint8_t { kRefuse, kAccept };

/// The missing files between others of a plainly numbered series: wiki_02.txt if only wiki_01.txt
/// and wiki_03.txt exist. Only for series with more members than gaps, since years and the like are
/// numbers too; names that contain the number of files belong to missing_of_numbered().
std::vector<std::string> gaps_in_series(std::span<const std::string> names);

/// "a, b, c and 17 more".
std::string first_names(std::span<const std::string> names, size_t most = 5);

}  // namespace bertha

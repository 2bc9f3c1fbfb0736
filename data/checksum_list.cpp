#include "data/checksum_list.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "data/new_file.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

std::string stem_of(const std::string& name) {
  const std::filesystem::path path(name);
  const bool known_ending = path.extension() == ".hdf5" || path.extension() == ".hdf";
  return known_ending ? path.stem().string() : path.filename().string();
}

}  // namespace

std::string ChecksumList::md5_of(const std::string& shard_name) const {
  const auto found = md5_of_stem.find(stem_of(shard_name));
  return found == md5_of_stem.end() ? "" : found->second;
}

ChecksumList read_checksum_list(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(ExitCode::kData, path, ": cannot open: ", std::strerror(errno));
  ChecksumList list{.path = path, .md5_of_stem = {}};
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const size_t gap = line.find_first_of("\t ");
    const size_t digits = gap == std::string::npos ? gap : line.find_first_not_of("\t ", gap);
    const std::string md5 = digits == std::string::npos ? "" : line.substr(digits);
    if (md5.size() != 32 || md5.find_first_not_of("0123456789abcdef") != std::string::npos) {
      fail(ExitCode::kData, path, ": line ", number, " is \"", line.substr(0, 100),
           "\", want the name of a shard, a tab and 32 hex digits");
    }
    if (!list.md5_of_stem.emplace(stem_of(line.substr(0, gap)), md5).second) {
      fail(ExitCode::kData, path, ": line ", number, " names ", line.substr(0, gap), " again");
    }
  }
  if (list.md5_of_stem.empty()) fail(ExitCode::kData, path, ": no checksum inside");
  return list;
}

std::vector<ChecksumDifference> compare_checksums(const ChecksumList& list,
                                                  const std::vector<ManifestShard>& shards) {
  using Kind = ChecksumDifference::Kind;
  std::vector<ChecksumDifference> differences;
  std::set<std::string> seen;
  for (const ManifestShard& shard : shards) {
    seen.insert(stem_of(shard.name));
    const std::string want = list.md5_of(shard.name);
    if (want.empty()) {
      differences.push_back({Kind::kUnknown, shard.name, concat("not in ", list.path)});
    } else if (want != shard.md5_of_lists) {
      differences.push_back({Kind::kOtherTokens, shard.name,
                             concat("checksum of the token ids is ", shard.md5_of_lists, ", want ",
                                    want, " as ", list.path, " says")});
    }
  }
  for (const auto& [stem, md5] : list.md5_of_stem) {
    if (seen.contains(stem)) continue;
    differences.push_back({Kind::kMissing, stem, concat("missing, but in ", list.path)});
  }
  return differences;
}

void write_checksum_list(const std::string& path, const std::vector<ManifestShard>& shards) {
  std::string text;
  for (const ManifestShard& shard : shards) text += shard.name + "\t" + shard.md5_of_lists + "\n";
  write_new_file(path, text);
}

}  // namespace bertha

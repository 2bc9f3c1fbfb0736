#include "data/format/checksum_list.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <set>
#include <sstream>

#include "data/files/hashing.h"
#include "data/files/new_file.h"
#include "data/files/text_file.h"
#include "data/format/shard_names.h"
#include "kernels/base/error.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

/// "[101, 2023]", as Python prints a list of integers.
void python_list(std::span<const TokenId> values, std::string& text) {
  text = "[";
  std::array<char, 12> digits{};
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), values[i]).ptr;
    text.append(digits.data(), end);
  }
  text += "]";
}

std::string stem_of(const std::string& name) {
  const std::filesystem::path path(name);
  const bool known_ending = path.extension() == ".hdf5" || path.extension() == ".hdf";
  return known_ending ? path.stem().string() : path.filename().string();
}

}  // namespace

std::string md5_of_lists(const SampleSet& samples, std::span<const int64_t> row_offsets) {
  const int64_t num_rows = row_offsets.empty() ? samples.size() : std::ssize(row_offsets) - 1;
  const auto first_token = [&](int64_t row) {
    const int64_t sample = row_offsets.empty() ? row : row_offsets[static_cast<size_t>(row)];
    return static_cast<size_t>(samples.token_offsets[static_cast<size_t>(sample)]);
  };
  Digest row_digest("MD5");
  Digest list_digest("MD5");
  std::string text;
  list_digest.update("[");
  for (int64_t row = 0; row < num_rows; ++row) {
    const size_t first = first_token(row);
    python_list(std::span(samples.token_ids).subspan(first, first_token(row + 1) - first), text);
    row_digest.update(text);
    text = concat(row == 0 ? "'" : ", '", row_digest.finish(), "'");
    list_digest.update(text);
  }
  list_digest.update("]");
  return list_digest.finish();
}

std::string ChecksumList::md5_of(const std::string& shard_name) const {
  const auto found = md5_of_stem.find(stem_of(shard_name));
  return found == md5_of_stem.end() ? "" : found->second;
}

ChecksumList read_checksum_list(const std::string& path) {
  std::istringstream file(read_text_file(path));
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
      fail(ExitCode::kData, path, ": line ", number, " is \"", shortened(line),
           "\", want the name of a shard, a tab and 32 hex digits");
    }
    if (!list.md5_of_stem.emplace(stem_of(line.substr(0, gap)), md5).second) {
      fail(ExitCode::kData, path, ": line ", number, " lists ", line.substr(0, gap),
           " again; remove one of the lines");
    }
  }
  if (list.md5_of_stem.empty())
    fail(ExitCode::kData, path, ": contains no checksum; give a published list");
  return list;
}

std::string unrelated_list(const ChecksumList& list, std::span<const std::string> shard_names) {
  const auto known = [&](const std::string& name) { return !list.md5_of(name).empty(); };
  if (shard_names.empty() || std::ranges::any_of(shard_names, known)) return "";
  return concat("is the list of ", list.md5_of_stem.size(), " other shards (",
                list.md5_of_stem.begin()->first, " and so on) and lists none of these ",
                shard_names.size(), " (", stem_of(shard_names.front()),
                " and so on); give the list of this number of shards");
}

std::vector<ChecksumDifference> compare_checksums(const ChecksumList& list,
                                                  const std::vector<ManifestShard>& shards) {
  using Kind = ChecksumDifference::Kind;
  std::vector<ChecksumDifference> differences;
  std::set<std::string> seen;
  std::vector<std::string> names, unknown, missing;
  for (const ManifestShard& shard : shards) names.push_back(shard.name);
  if (const std::string what = unrelated_list(list, names); !what.empty()) {
    return {{Kind::kUnknown, list.path, what}};
  }
  for (const ManifestShard& shard : shards) {
    seen.insert(stem_of(shard.name));
    const std::string want = list.md5_of(shard.name);
    if (want.empty()) {
      unknown.push_back(shard.name);
    } else if (want != shard.md5_of_lists) {
      differences.push_back({Kind::kOtherTokens, shard.name,
                             concat("checksum of the token ids is ", shard.md5_of_lists, ", want ",
                                    want, " as in ", list.path)});
    }
  }
  for (const auto& [stem, md5] : list.md5_of_stem) {
    if (!seen.contains(stem)) missing.push_back(stem);
  }
  const auto tell = [&](Kind kind, const std::vector<std::string>& of, const char* what) {
    if (!of.empty()) differences.push_back({kind, first_names(of), concat(what, list.path)});
  };
  tell(Kind::kUnknown, unknown, "not in ");
  tell(Kind::kMissing, missing, "missing, but in ");
  return differences;
}

void write_checksum_list(const std::string& path, const std::vector<ManifestShard>& shards) {
  std::string text;
  for (const ManifestShard& shard : shards) text += shard.name + "\t" + shard.md5_of_lists + "\n";
  write_new_file(path, text);
}

}  // namespace bertha

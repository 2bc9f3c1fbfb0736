#include "data/shard_names.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <regex>
#include <set>

#include "kernels/base/error.h"

namespace bertha {
namespace {

/// What the names of one set have in common.
struct NumberedSet {
  std::string before;  // "part_"
  std::string after;   // "_of_04320.hdf5"
  size_t digits = 0;
  int64_t count = 0;  // 0: not told

  auto operator<=>(const NumberedSet&) const = default;
};

std::string padded(int64_t number, size_t digits) {
  const std::string text = std::to_string(number);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}

}  // namespace

bool is_shard_name(const std::string& name) {
  static const std::regex packed("part_[0-9]+(_of_[0-9]+)?");
  return std::regex_match(name, packed) || (name.find("part") != std::string::npos &&
                                            (name.ends_with(".hdf5") || name.ends_with(".hdf")));
}

std::string shard_name(int64_t index, int64_t count) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "part_%05lld_of_%05lld.hdf5",
                static_cast<long long>(index), static_cast<long long>(count));
  return name.data();
}

std::vector<int64_t> shard_sizes(int64_t num_samples, int64_t num_shards) {
  if (num_samples < num_shards) {
    fail(ExitCode::kData, num_shards, " shards wanted, but there are only ", num_samples,
         " samples; ask for at most that many shards or give more data");
  }
  const int64_t nominal = (num_samples + num_shards - 1) / num_shards;
  const int64_t num_smaller = num_shards * nominal - num_samples;
  std::vector<int64_t> sizes(static_cast<size_t>(num_shards), nominal);
  std::fill_n(sizes.begin(), num_smaller, nominal - 1);
  return sizes;
}

std::vector<std::string> missing_of_numbered(std::span<const std::string> names) {
  static const std::regex of_many("(.*?)([0-9]{1,6})([_-]of[_-])([0-9]{1,6})(\\..*)?");
  static const std::regex plain("(part_)([0-9]{1,6})");
  std::map<NumberedSet, std::set<int64_t>> found;
  for (const std::string& name : names) {
    std::smatch words;
    if (std::regex_match(name, words, of_many)) {
      found[{.before = words[1],
             .after = words[3].str() + words[4].str() + words[5].str(),
             .digits = words[2].str().size(),
             .count = std::stoll(words[4])}]
          .insert(std::stoll(words[2]));
    } else if (std::regex_match(name, words, plain)) {
      found[{.before = words[1], .after = "", .digits = words[2].str().size(), .count = 0}].insert(
          std::stoll(words[2]));
    }
  }
  std::vector<std::string> missing;
  for (const auto& [set, numbers] : found) {
    const int64_t count = set.count > 0 ? set.count : *numbers.rbegin() + 1;
    for (int64_t number = 0; number < count; ++number) {
      if (numbers.contains(number)) continue;
      missing.push_back(set.before + padded(number, set.digits) + set.after);
    }
  }
  return missing;
}

std::string first_names(std::span<const std::string> names, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > most) text += concat(" and ", names.size() - most, " more");
  return text;
}

}  // namespace bertha

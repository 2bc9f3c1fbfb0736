#include "data/format/shard_names.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/base/shell_word.h"

namespace bertha {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr size_t kMaxDigits = 6;

/// The numbers that the names of a set have.
struct Numbers {
  std::set<int64_t> found;
  size_t digits = kMaxDigits;  // the fewest: how far the numbers are padded

  void add(const std::string& number) {
    found.insert(std::stoll(number));
    digits = std::min(digits, number.size());
  }
};

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= kMaxDigits &&
         text.find_first_not_of(kDigits) == std::string_view::npos;
}

std::string padded(int64_t number, size_t digits) {
  const std::string text = std::to_string(number);
  return text.size() < digits ? std::string(digits - text.size(), '0') + text : text;
}

/// Whether a file looks like TFRecords or text that must be converted to shards first.
bool is_unconverted(const std::string& name) {
  const auto parts = numbered_name(name);
  const bool is_part = parts && parts->of == "-of-" && parts->after.empty();
  return is_part || name.ends_with(".tfrecord") || name.ends_with(".tfrecords");
}

bool is_hdf5_name(const std::string& name) {
  return name.ends_with(".hdf5") || name.ends_with(".hdf") || name.ends_with(".h5");
}

/// Whether the name is one that NVIDIA's DeepLearningExamples use for a shard of this set.
bool is_shard_of_set(const std::string& name, const char* set) {
  return name.ends_with(".hdf5") && name.find(set) != std::string::npos;
}

}  // namespace

std::optional<NumberedName> numbered_name(const std::string& name) {
  size_t at = name.find("_of_");
  if (at == std::string::npos) at = name.find("-of-");
  if (at == std::string::npos) {
    constexpr std::string_view kPart = "part_";
    if (!name.starts_with(kPart) || !is_number(name.substr(kPart.size()))) return std::nullopt;
    return NumberedName{.before = std::string(kPart), .number = name.substr(kPart.size())};
  }
  const size_t last_other = name.substr(0, at).find_last_not_of(kDigits);
  const size_t first = last_other == std::string::npos ? 0 : last_other + 1;
  const size_t end = std::min(name.find_first_not_of(kDigits, at + 4), name.size());
  NumberedName parts{.before = name.substr(0, first),
                     .number = name.substr(first, at - first),
                     .of = name.substr(at, 4),
                     .count = name.substr(at + 4, end - at - 4),
                     .after = name.substr(end)};
  const bool ends_well = parts.after.empty() || parts.after.front() == '.';
  if (!is_number(parts.number) || !is_number(parts.count) || !ends_well) return std::nullopt;
  return parts;
}

bool is_shard_name(const std::string& name) {
  if (name.ends_with(".hdf5") || name.ends_with(".hdf")) {
    return name.find("part") != std::string::npos;
  }
  const auto parts = numbered_name(name);
  return parts && parts->before == "part_" && parts->of != "-of-" && parts->after.empty();
}

std::vector<std::string> list_shards(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    fail(ExitCode::kData, path, ": no such file or folder; give a folder of shards or one shard");
  }
  if (!std::filesystem::is_directory(status)) return {path};
  std::vector<std::string> names;
  std::filesystem::directory_iterator entries(path, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    names.push_back(entries->path().filename().string());
  }
  if (error) fail(ExitCode::kData, path, ": the folder cannot be read: ", error.message());
  std::ranges::sort(names);
  std::vector<std::string> shards;
  const auto add_those = [&](const auto& is_one) {
    for (const std::string& name : names) {
      if (is_one(name)) shards.push_back((std::filesystem::path(path) / name).string());
    }
  };
  add_those(is_shard_name);
  for (const char* set : {"training", "test"}) {
    if (shards.empty()) add_those([&](const auto& name) { return is_shard_of_set(name, set); });
  }
  if (!shards.empty()) return shards;
  if (const auto found = std::ranges::find_if(names, is_unconverted); found != names.end()) {
    fail(ExitCode::kData, path, ": contains ", *found,
         " but no shard; convert TFRecord files with `bertha data convert ", shell_word(path),
         " --output DIR`, prepare text with `bertha data prepare --text ", shell_word(path),
         " ...`");
  }
  const auto other = std::ranges::find_if(names, is_hdf5_name);
  fail(ExitCode::kData, path, ": no shard in this folder",
       other == names.end() ? "" : concat(", but ", *other, "; put \"part_\" before such names"),
       "; want files whose name contains \"part\" and ends in .hdf5 or .hdf, as `bertha data "
       "prepare` writes them, or part_00000 and so on");
}

std::string shard_name(int64_t index, int64_t count) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "part_%05lld_of_%05lld.hdf5",
                static_cast<long long>(index), static_cast<long long>(count));
  return name.data();
}

std::vector<std::string> shard_names(int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(shard_name(i, count));
  return names;
}

std::vector<int64_t> shard_sizes(int64_t num_samples, int64_t num_shards) {
  if (num_samples < num_shards) {
    fail(ExitCode::kData, "found only ", num_samples, " samples, want at least one for each of ",
         num_shards, " shards; ask for fewer shards or give more data");
  }
  const int64_t nominal = ceil_div(num_samples, num_shards);
  const int64_t num_smaller = num_shards * nominal - num_samples;
  std::vector<int64_t> sizes(static_cast<size_t>(num_shards), nominal);
  std::fill_n(sizes.begin(), num_smaller, nominal - 1);
  return sizes;
}

std::vector<std::string> missing_of_numbered(std::span<const std::string> names) {
  using Set = std::array<std::string, 3>;  // "part_", "_of_04320.hdf5", "04320"
  std::map<Set, Numbers> found;
  for (const std::string& name : names) {
    const auto parts = numbered_name(name);
    if (!parts) continue;
    found[{parts->before, parts->of + parts->count + parts->after, parts->count}].add(
        parts->number);
  }
  std::vector<std::string> missing;
  for (const auto& [set, numbers] : found) {
    const auto& [before, after, stated] = set;
    const int64_t told = stated.empty() ? 0 : std::stoll(stated);
    const int64_t count = told > 0 ? told : *numbers.found.rbegin() + 1;
    for (int64_t number = 0; number < count; ++number) {
      if (numbers.found.contains(number)) continue;
      missing.push_back(before + padded(number, numbers.digits) + after);
    }
  }
  return missing;
}

std::vector<std::string> gaps_in_series(std::span<const std::string> names) {
  std::map<std::pair<std::string, std::string>, Numbers> found;  // by the text around the number
  for (const std::string& name : names) {
    const size_t last = name.find_last_of(kDigits);
    if (last == std::string::npos || numbered_name(name)) continue;
    const size_t before = name.find_last_not_of(kDigits, last);
    const size_t first = before == std::string::npos ? 0 : before + 1;
    const std::string number = name.substr(first, last + 1 - first);
    if (!is_number(number)) continue;
    found[{name.substr(0, first), name.substr(last + 1)}].add(number);
  }
  std::vector<std::string> gaps;
  for (const auto& [around, series] : found) {
    const std::set<int64_t>& numbers = series.found;
    const int64_t span = *numbers.rbegin() - *numbers.begin() + 1;
    if (span >= 2 * std::ssize(numbers)) continue;
    for (int64_t number = *numbers.begin(); number < *numbers.rbegin(); ++number) {
      if (numbers.contains(number)) continue;
      gaps.push_back(around.first + padded(number, series.digits) + around.second);
    }
  }
  return gaps;
}

std::string first_names(std::span<const std::string> names, size_t most) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > most) text += concat(" and ", names.size() - most, " more");
  return text;
}

}  // namespace bertha

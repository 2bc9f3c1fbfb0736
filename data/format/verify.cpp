#include "data/format/verify.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <system_error>
#include <thread>

#include "data/files/hashing.h"
#include "data/format/checksum_list.h"
#include "data/format/manifest.h"
#include "data/format/shard_names.h"
#include "data/format/shard_reader.h"
#include "data/format/stats.h"
#include "kernels/base/error.h"
#include "kernels/base/failure.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

/// The result of checking one shard.
struct ShardResult {
  std::string shard;
  int64_t max_findings = 0;
  std::vector<Finding> findings = {};
  int64_t num_unlisted = 0;  // findings beyond the most that are kept
  int64_t bytes = 0;
  std::string md5_of_lists = {};  // empty: could not be read
  DataStats stats = {};

  void add(int64_t row, const std::string& dataset, const std::string& what) {
    if (std::ssize(findings) >= max_findings) {
      ++num_unlisted;
      return;
    }
    findings.push_back({.shard = shard, .what = what, .row = row, .dataset = dataset});
  }
  void add(const std::string& what) { add(-1, "", what); }
};

/// The value of more than half of the samples, if there is one (Boyer and Moore).
template <class ValueOf>
TokenId majority(const SampleSet& samples, const ValueOf& value_of) {
  TokenId candidate = 0;
  int64_t lead = 0;
  for (int64_t row = 0; row < samples.size(); ++row) {
    const auto ids = samples[row].token_ids;
    if (ids.empty()) continue;
    if (lead == 0) candidate = value_of(ids);
    lead += value_of(ids) == candidate ? 1 : -1;
  }
  return candidate;
}

/// Checks guarantees of the generator that training does not need. Of the special tokens only [CLS]
/// and [SEP] are checked.
void check_structure(const SampleView& sample, const SpecialTokens& special, const RowReport& row) {
  using namespace dataset_names;
  const auto ids = sample.token_ids;
  if (ids.empty()) return;  // already reported
  const TokenId cls = special.classify, sep = special.separator;
  const int64_t last = std::ssize(ids) - 1;
  const auto ones = std::ranges::find(sample.segment_ids, int8_t{1});
  const int64_t boundary = ones - sample.segment_ids.begin() - 1;  // last token of segment 0
  if (ids.front() != cls) {
    row.wrong(kInputIds, "starts with id ", ids.front(), ", want [CLS] ", cls);
  }
  for (const int64_t end : {boundary == last ? -1 : boundary, last}) {
    if (end < 1 || ids[static_cast<size_t>(end)] == sep) continue;
    row.wrong(kInputIds, "element ", end, " ends a segment with id ", ids[static_cast<size_t>(end)],
              ", want [SEP] ", sep);
  }
  const auto is_masked = [&](int64_t position) {
    return std::ranges::binary_search(sample.masked_positions, position);
  };
  for (int64_t at = 1; at < last; ++at) {
    if (ids[static_cast<size_t>(at)] != sep || at == boundary || is_masked(at)) continue;
    row.wrong(kInputIds, "element ", at, " is [SEP] ", sep,
              " inside a segment, want it at the end");
    break;
  }
  if (sample.masked_positions.empty()) row.wrong(kMaskedPositions, "no masked position");
  for (const int16_t position : sample.masked_positions) {
    if (position != boundary && position != last) continue;
    row.wrong(kMaskedPositions, "position ", position, " is [SEP], never masked");
  }
  for (const TokenId label : sample.masked_ids) {
    if (label != cls && label != sep) continue;
    row.wrong(kMaskedIds, "label ", label, " is [CLS] or [SEP], never masked");
  }
}

void check_samples(const std::string& path, const SampleLimits& limits, ShardResult& result) {
  const ViolationReport report = [&](const Violation& violation) {
    result.add(violation.row, violation.dataset, violation.what);
  };
  const ShardContents shard = read_shard_reporting(path, 0, limits, report);
  const SampleSet& samples = shard.samples;
  result.md5_of_lists = md5_of_lists(samples, shard.row_offsets);
  result.stats.add(samples);
  // What most samples start and end with, so that the vocabulary is not needed.
  using Ids = std::span<const TokenId>;
  const SpecialTokens special{.classify = majority(samples, [](Ids ids) { return ids.front(); }),
                              .separator = majority(samples, [](Ids ids) { return ids.back(); })};
  for (int64_t i = 0; i < samples.size(); ++i) {
    check_structure(samples[i], special, {shard.row_of(i), report});
  }
}

template <class Value>
void expect_equal(const char* name, const Value& found, const Value& want, ShardResult& result) {
  if (found == want) return;
  result.add(concat(name, " is ", found, ", want ", want, " as in the manifest"));
}

/// `entry` is null when the manifest does not exist or does not list the shard.
void check_shard(const std::string& path, const ManifestShard* entry, const SampleLimits& limits,
                 ShardResult& result) {
  try {
    result.bytes = static_cast<int64_t>(fs::file_size(path));
    if (entry != nullptr) {
      expect_equal("size in bytes", result.bytes, entry->bytes, result);
      const std::string xxh3 = xxh3_of_file(path);
      expect_equal("XXH3 of the file", xxh3, entry->xxh3, result);
      if (xxh3 != entry->xxh3) return;  // a changed byte can end the HDF5 library
    }
    check_samples(path, limits, result);
    if (entry != nullptr) {
      expect_equal("number of samples", result.stats.num_samples, entry->samples, result);
      expect_equal("checksum of the token ids", result.md5_of_lists, entry->md5_of_lists, result);
    }
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    if (failure.code != ExitCode::kData) throw;
    result.add(failure.what);
  }
}

/// Finds the same token ids in two shards: one was copied or prepared twice.
void find_duplicates(const std::vector<std::string>& names, const std::vector<ShardResult>& results,
                     std::vector<Finding>& findings) {
  std::map<std::string, std::string> first_with;
  for (size_t i = 0; i < names.size(); ++i) {
    if (results[i].stats.num_samples == 0) continue;
    const auto [seen, is_new] = first_with.emplace(results[i].md5_of_lists, names[i]);
    if (is_new) continue;
    findings.push_back(
        {.shard = names[i], .what = concat("contains the same token ids as ", seen->second)});
  }
}

void check_totals(const Manifest& manifest, const DataStats& stats,
                  std::vector<Finding>& findings) {
  const auto wrong = [&](const std::string& what) {
    findings.push_back({.shard = kManifestName, .what = what});
  };
  if (const auto count = manifest.counts.find("samples");
      count != manifest.counts.end() && count->second != stats.num_samples) {
    wrong(concat("counts.samples is ", count->second, ", but the shards contain ",
                 stats.num_samples));
  }
  std::vector<int64_t> stated = manifest.token_length_histogram;
  std::vector<int64_t> found = stats.token_length_histogram;
  const size_t lengths = std::max(stated.size(), found.size());
  stated.resize(lengths);
  found.resize(lengths);
  const auto [want, have] = std::mismatch(stated.begin(), stated.end(), found.begin());
  if (want == stated.end()) return;
  const auto length = want - stated.begin();
  wrong(concat("token_length_histogram[", length, "] is ", *want, ", but the shards contain ",
               *have, " samples of ", length, " tokens"));
}

/// `whole_folder` is false if a single shard is checked; the list may then contain others.
void check_list(const std::string& path, bool whole_folder, const std::vector<std::string>& names,
                const std::vector<ShardResult>& results, std::vector<Finding>& findings) {
  ChecksumList list = read_checksum_list(path);
  std::vector<ManifestShard> shards;
  for (size_t i = 0; i < names.size(); ++i) {
    if (results[i].md5_of_lists.empty()) continue;  // unreadable: reported already
    shards.push_back({.name = names[i], .xxh3 = {}, .md5_of_lists = results[i].md5_of_lists});
  }
  for (const ChecksumDifference& difference : compare_checksums(list, shards)) {
    if (difference.kind == ChecksumDifference::Kind::kMissing && !whole_folder) continue;
    findings.push_back({.shard = difference.shard, .what = difference.what});
  }
}

// --- shards that may end the process ---

[[noreturn]] void read_and_exit(const std::string& path) {
  // The library's guard needs less time, but the thread sanitizer delays its signal in there.
  std::error_code ignored;
  const auto mib = static_cast<rlim_t>(fs::file_size(path, ignored) >> 20);
  const rlimit seconds{10 + 8 * mib, 10 + 8 * mib};
  setrlimit(RLIMIT_CPU, &seconds);
  // The caller reports what the guard writes if it ends this process.
  if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(0);
  try {
    read_shard_reporting(path, 0, {}, [](const Violation&) {});
  } catch (...) {  // the caller reads the shard again and reports the error
  }
  _exit(0);
}

/// Reads each shard but those to skip in a process of its own, `num_processes` at a time (0: one
/// per core), since a damaged structure can end the process inside of the HDF5 library
/// (Hdf5Guard). For each shard a sentence about that, or "" when its process ended by itself,
/// whatever it found.
///
/// Errors    Error(kEnvironment) when no process can be started.
/// Threads   none may run besides the caller's: the processes are forked.
std::vector<std::string> probe_shards(const std::vector<std::string>& paths,
                                      const std::function<bool(size_t)>& skips,
                                      int64_t num_processes) {
  std::vector<std::string> endings(paths.size());
  std::map<pid_t, size_t> running;
  const auto wait_for_one = [&] {
    int status = 0;
    const auto [child, shard] = *running.begin();
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      endings[shard] =
          "it crashes the HDF5 library or keeps it in a loop; the file is damaged, prepare or copy "
          "it "
          "again";
    }
    running.erase(child);
  };
  const auto wanted = static_cast<size_t>(
      num_processes > 0 ? num_processes
                        : std::max<int64_t>(1, std::thread::hardware_concurrency()));
  for (size_t shard = 0; shard < paths.size(); ++shard) {
    if (skips(shard)) continue;
    if (running.size() == wanted) wait_for_one();
    const pid_t child = fork();
    if (child == 0) read_and_exit(paths[shard]);
    if (child < 0) {
      const int reason = errno;
      while (!running.empty()) wait_for_one();
      fail(ExitCode::kEnvironment, "cannot start a process to read ", paths[shard], ": ",
           std::strerror(reason));
    }
    running[child] = shard;
  }
  while (!running.empty()) wait_for_one();
  return endings;
}

}  // namespace

std::string Finding::text() const {
  return concat(shard, row < 0 ? "" : concat(", row ", row), dataset.empty() ? "" : ", ", dataset,
                ": ", what);
}

VerifyReport verify_data(const std::string& path, const VerifyOptions& options,
                         const ItemProgress& progress) {
  const bool whole_folder = fs::is_directory(path);
  const std::optional<Manifest> found_manifest = find_manifest(path);
  const Manifest manifest = found_manifest.value_or(Manifest());
  VerifyReport report;
  report.has_manifest = found_manifest.has_value();
  const SampleLimits limits = options.limits.value_or(manifest.limits);

  std::map<std::string, const ManifestShard*> listed;
  for (const ManifestShard& shard : manifest.shards) listed[shard.name] = &shard;
  const std::vector<std::string> paths = list_shards(path);
  std::vector<std::string> names;
  for (const std::string& shard : paths) names.push_back(fs::path(shard).filename());

  // The hash of a listed shard is compared before the shard is read.
  const auto is_listed = [&](size_t i) { return listed.contains(names[i]); };
  const std::vector<std::string> endings = probe_shards(paths, is_listed, options.num_threads);

  std::vector<ShardResult> results;
  for (const std::string& name : names) {
    results.push_back({.shard = name, .max_findings = options.max_findings_per_shard});
  }
  const auto check = [&](int64_t shard) {
    const auto i = static_cast<size_t>(shard);
    const auto entry = listed.find(names[i]);
    if (report.has_manifest && entry == listed.end()) results[i].add("not in the manifest");
    if (!endings[i].empty()) return results[i].add(endings[i]);
    check_shard(paths[i], entry == listed.end() ? nullptr : entry->second, limits, results[i]);
  };
  for_each_parallel(std::ssize(paths), options.num_threads, check, progress);

  DataStats total;
  for (size_t i = 0; i < paths.size(); ++i) {
    ShardResult& result = results[i];
    std::ranges::move(result.findings, std::back_inserter(report.findings));
    if (result.num_unlisted > 0) {
      report.findings.push_back(
          {.shard = names[i], .what = concat(result.num_unlisted, " more findings, not listed")});
    }
    report.num_bytes += result.bytes;
    total.add(result.stats);
  }
  report.num_shards = std::ssize(paths);
  report.num_samples = total.num_samples;
  find_duplicates(names, results, report.findings);
  if (!report.has_manifest && whole_folder) {
    for (const std::string& name : missing_of_numbered(names)) {
      report.findings.push_back({.shard = name, .what = "missing, judging by the other names"});
    }
  }
  if (!options.checksum_list.empty()) {
    check_list(options.checksum_list, whole_folder, names, results, report.findings);
  }
  if (report.has_manifest && whole_folder) {
    for (const auto& [name, entry] : listed) {
      if (std::ranges::find(names, name) != names.end()) continue;
      report.findings.push_back({.shard = name, .what = "missing, but in the manifest"});
    }
    check_totals(manifest, total, report.findings);
  }
  return report;
}

}  // namespace bertha

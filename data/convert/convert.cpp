#include "data/convert/convert.h"

#include <filesystem>
#include <limits>
#include <numeric>
#include <set>

#include "data/convert/redistribute.h"
#include "data/format/shard_names.h"
#include "data/format/shard_writer.h"
#include "data/random/python_random.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

/// The name of a source file as a shard: part-00000-of-00500 and part_0.hdf become .hdf5, and
/// eval_10k part_eval_10k.hdf5.
std::string converted_name(const std::string& path) {
  const fs::path name = fs::path(path).filename();
  std::string stem = name.has_extension() ? name.stem().string() : name.string();
  if (stem.find("part") == std::string::npos) stem = "part_" + stem;
  return stem + ".hdf5";
}

std::vector<std::string> converted_names(const SequenceFiles& files) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const SequenceFile& file : files.files) {
    names.push_back(converted_name(file.path));
    if (seen.insert(names.back()).second) continue;
    fail(ExitCode::kData, file.path, ": another file would also be written as ", names.back(),
         "; move one of them away, or give the number of shards");
  }
  return names;
}

/// First sequence of each shard, and the end.
std::vector<int64_t> firsts_of_shards(const ConvertOptions& options, const SequenceFiles& files) {
  std::vector<int64_t> firsts{0};
  if (options.num_shards == 0) {
    for (const SequenceFile& file : files.files) firsts.push_back(firsts.back() + file.num_seqs);
    return firsts;
  }
  for (const int64_t size : shard_sizes(files.num_seqs, options.num_shards)) {
    firsts.push_back(firsts.back() + size);
  }
  return firsts;
}

ShardJob job_of(const ConvertOptions& options, const SequenceFiles& files) {
  ShardJob job = job_of_source(
      options.source, files, options.output_dir,
      options.num_shards > 0 ? shard_names(options.num_shards) : converted_names(files));
  job.manifest.seed = options.shuffle_seed.value_or(0);
  job.manifest.options["made_by"] = "data convert";
  job.manifest.options["layout"] = layout_name(options.layout);
  job.manifest.options["num_shards"] = concat(options.num_shards);
  job.manifest.options["shuffle_seed"] =
      options.shuffle_seed ? concat(*options.shuffle_seed) : "none";
  return job;
}

void check_options(const ConvertOptions& options) {
  if (options.layout == ShardLayout::kPacked) {
    fail(ExitCode::kUsage, "the packed layout needs another command: run `bertha data pack`");
  }
  refuse_same_folder(options.source, options.output_dir);
}

/// Before hours of work with a list that cannot fit.
void check_names(const ChecksumList& list, const std::vector<std::string>& names) {
  const std::string what = unrelated_list(list, names);
  if (what.empty()) return;
  fail(ExitCode::kUsage, "--chk ", list.path, ": ", what, ", or write --shards ",
       list.md5_of_stem.size());
}

void make_shards(const ConvertOptions& options, const SequenceFiles& files, JobFolder& folder,
                 const WorkProgress& progress) {
  const SampleLimits& limits = options.source.limits;
  const std::vector<int64_t> firsts = firsts_of_shards(options, files);
  std::vector<uint32_t> place_of;
  if (options.shuffle_seed) place_of = published_shuffle(files.num_seqs, *options.shuffle_seed);
  const Redistribution all{.files = files,
                           .limits = limits,
                           .place_of = place_of,
                           .shard_firsts = firsts,
                           .memory_bytes = options.source.memory_bytes,
                           .num_threads = options.source.num_threads};
  if (options.shuffle_seed) scatter(all, folder, progress_of(progress, "scatter", "parts"));
  const auto write = [&](int64_t shard, const std::string& path) {
    ShardWriter writer(path, options.layout, limits);
    const auto append = [&](const SampleView& sample) { writer.append(sample); };
    if (options.shuffle_seed) {
      gather(all, folder, shard, append);
    } else {
      const auto s = static_cast<size_t>(shard);
      read_sequences(files, firsts[s], firsts[s + 1] - firsts[s], limits, append);
    }
    writer.finish();
  };
  folder.make_shards(write, progress_of(progress, "write", "shards"));
}

}  // namespace

std::vector<uint32_t> published_shuffle(int64_t num_seqs, uint64_t seed) {
  if (num_seqs > std::numeric_limits<uint32_t>::max()) {
    fail(ExitCode::kUsage, num_seqs, " sequences to shuffle, want fewer than 2^32");
  }
  std::vector<uint32_t> order(static_cast<size_t>(num_seqs));
  std::iota(order.begin(), order.end(), 0u);
  PythonRandom(seed).shuffle(std::span(order));
  std::vector<uint32_t> place_of(order.size());
  for (size_t place = 0; place < order.size(); ++place) {
    place_of[order[place]] = static_cast<uint32_t>(place);
  }
  return place_of;
}

ConvertResult convert_data(const ConvertOptions& options, const WorkProgress& progress) {
  check_options(options);
  ChecksumList wanted;
  if (!options.checksum_list.empty()) wanted = read_checksum_list(options.checksum_list);
  const SequenceFiles files = inspect_source(options.source, progress);
  const ShardJob job = job_of(options, files);
  if (!options.checksum_list.empty()) check_names(wanted, job.names);
  JobFolder folder(job);
  if (!folder.result().already_done) {
    check_source(options.source, files, progress);
    make_shards(options, files, folder, progress);
  }
  ConvertResult result{folder.result(), {}};
  if (!options.checksum_list.empty()) {
    result.checksum_differences = compare_checksums(wanted, result.manifest.shards);
  }
  return result;
}

}  // namespace bertha

#include "data/convert/pack.h"

#include <chrono>
#include <numeric>

#include "data/convert/redistribute.h"
#include "data/format/shard_names.h"
#include "data/format/shard_writer.h"
#include "kernels/base/error.h"
#include "kernels/base/seconds_since.h"

namespace bertha {
namespace {

void check_options(const PackOptions& options) {
  if (options.max_seqs_per_pack < 1 || options.max_seqs_per_pack > 255) {
    fail(ExitCode::kUsage, "--max-per-pack ", options.max_seqs_per_pack, ", want 1 to 255");
  }
  refuse_same_folder(options.source, options.output_dir);
}

std::vector<int64_t> histogram_of(std::span<const uint16_t> tokens, int64_t max_tokens) {
  std::vector<int64_t> seqs_of_length(static_cast<size_t>(max_tokens) + 1);
  for (const uint16_t length : tokens) ++seqs_of_length[length];
  return seqs_of_length;
}

/// Where the shards begin, in packs and in sequences; both with the end.
struct ShardBounds {
  std::vector<int64_t> first_pack{0};
  std::vector<int64_t> first_seq{0};
};

ShardBounds bounds_of(std::span<const uint8_t> pack_seqs, int64_t num_shards) {
  ShardBounds bounds;
  for (const int64_t packs : shard_sizes(std::ssize(pack_seqs), num_shards)) {
    const auto of_shard = pack_seqs.subspan(static_cast<size_t>(bounds.first_pack.back()),
                                            static_cast<size_t>(packs));
    bounds.first_pack.push_back(bounds.first_pack.back() + packs);
    bounds.first_seq.push_back(
        std::accumulate(of_shard.begin(), of_shard.end(), bounds.first_seq.back()));
  }
  return bounds;
}

ShardJob job_of(const PackOptions& options, const SequenceFiles& files, int64_t num_shards) {
  ShardJob job = job_of_source(options.source, files, options.output_dir, shard_names(num_shards));
  job.manifest.seed = options.seed;
  job.manifest.options["made_by"] = "data pack";
  job.manifest.options["layout"] = layout_name(ShardLayout::kPacked);
  job.manifest.options["max_seqs_per_pack"] = concat(options.max_seqs_per_pack);
  job.manifest.options["num_shards"] = concat(num_shards);
  job.manifest.options["seed"] = concat(options.seed);
  return job;
}

void write_shards(const PackOptions& options, const SequenceFiles& files, int64_t num_shards,
                  const PackPlaces& places, JobFolder& folder, const WorkProgress& progress) {
  const ShardBounds bounds = bounds_of(places.pack_seqs, num_shards);
  const Redistribution all{.files = files,
                           .limits = options.source.limits,
                           .place_of = places.place_of,
                           .shard_firsts = bounds.first_seq,
                           .memory_bytes = options.source.memory_bytes,
                           .num_threads = options.source.num_threads};
  scatter(all, folder, progress_of(progress, "scatter", "parts"));
  const auto write = [&](int64_t shard, const std::string& path) {
    ShardWriter writer(path, ShardLayout::kPacked, options.source.limits,
                       options.max_seqs_per_pack);
    auto pack = static_cast<size_t>(bounds.first_pack[static_cast<size_t>(shard)]);
    int64_t in_pack = 0;
    gather(all, folder, shard, [&](const SampleView& sample) {
      writer.append(sample);
      if (++in_pack < places.pack_seqs[pack]) return;
      writer.end_pack();
      in_pack = 0;
      ++pack;
    });
    writer.finish();
  };
  folder.make_shards(write, progress_of(progress, "write", "shards"));
}

}  // namespace

PackResult pack_data(const PackOptions& options, const WorkProgress& progress) {
  check_options(options);
  const SequenceFiles files = inspect_source(options.source, progress);
  const auto num_shards = options.num_shards > 0 ? options.num_shards : std::ssize(files.files);
  const std::vector<uint16_t> tokens =
      read_token_counts(files, options.source.limits, options.source.num_threads,
                        progress_of(progress, "lengths", "files"));
  const PackLimits limits{.max_tokens = options.source.limits.max_seq_tokens,
                          .max_seqs = options.max_seqs_per_pack};
  PackResult result;
  const auto start = std::chrono::steady_clock::now();
  const std::vector<PackKind> plan = plan_packs(histogram_of(tokens, limits.max_tokens), limits);
  result.planning_seconds = seconds_since(start);
  result.figures = figures_of(plan, limits);
  if (options.output_dir.empty()) return result;

  JobFolder folder(job_of(options, files, num_shards));
  if (!folder.result().already_done) {
    check_source(options.source, files, progress);
    write_shards(options, files, num_shards, place_in_packs(plan, tokens, options.seed), folder,
                 progress);
  }
  static_cast<JobResult&>(result) = folder.result();
  return result;
}

}  // namespace bertha

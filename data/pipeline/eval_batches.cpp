#include <algorithm>

#include "data/format/shard_file.h"
#include "data/pipeline/collate.h"
#include "data/pipeline/pipeline.h"
#include "data/pipeline/shard_table.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// Samples [begin, end) of all samples in file order.
struct SampleRange {
  int64_t begin = 0;
  int64_t end = 0;
};

SampleRange part_of_rank(int64_t total, int rank, int num_ranks) {
  const int64_t chunk = total / num_ranks;
  const int64_t remainder = total % num_ranks;
  const int64_t begin = rank * chunk + std::min<int64_t>(rank, remainder);
  return {.begin = begin, .end = begin + chunk + (rank < remainder ? 1 : 0)};
}

SampleSet read_range(const ShardTable& table, const SampleRange& range,
                     const SampleLimits& limits) {
  SampleSet samples;
  for (size_t s = 0; s < table.paths.size(); ++s) {
    const int64_t first = table.first_ids[s];
    const int64_t begin = std::max(range.begin, first);
    const int64_t end = std::min(range.end, first + table.num_seqs[s]);
    if (begin >= end) continue;
    const SampleSet shard = read_shard(table, static_cast<int64_t>(s), limits);
    for (int64_t id = begin; id < end; ++id) samples.append(shard[id - first]);
  }
  return samples;
}

}  // namespace

std::vector<HostBatch> load_eval_batches(const EvalOptions& options, int rank, int num_ranks,
                                         const HostAllocator& allocate) {
  BERTHA_CHECK(options.batch_seqs >= 1, "batch_seqs ", options.batch_seqs);
  SoloTransport alone;
  const ShardTable table = inspect_shards(options.shards, options.shard_xxh3, alone);
  const int64_t total =
      options.max_samples > 0 ? std::min(options.max_samples, table.total_seqs) : table.total_seqs;
  const SampleSet samples = read_range(table, part_of_rank(total, rank, num_ranks), options.limits);
  std::vector<HostBatch> batches;
  for (int64_t first = 0; first < samples.size(); first += options.batch_seqs) {
    std::vector<SampleView> views;
    for (int64_t i = first; i < std::min(first + options.batch_seqs, samples.size()); ++i) {
      views.push_back(samples[i]);
    }
    batches.push_back(collate(std::move(views), options.group_bucket_tokens, allocate));
  }
  return batches;
}

}  // namespace bertha

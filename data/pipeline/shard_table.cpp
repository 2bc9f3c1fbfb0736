#include "data/pipeline/shard_table.h"

#include "data/format/manifest.h"
#include "data/format/shard_file.h"
#include "data/pipeline/agreement.h"
#include "kernels/base/error.h"

namespace bertha {

SampleSet read_shard(const ShardTable& table, int64_t s, const SampleLimits& limits) {
  const auto at = static_cast<size_t>(s);
  const std::string& path = table.paths[at];
  if (!table.xxh3[at].empty()) {
    check_hash(path, table.xxh3[at]);  // costs little: the samples are then read from memory
  }
  SampleSet samples = read_shard(path, table.first_ids[at], limits);
  if (samples.size() != table.num_seqs[at]) {
    fail(ExitCode::kData, path, ": ", samples.size(), " samples, but ", table.num_seqs[at],
         " when the run started; the file was changed under it");
  }
  return samples;
}

ShardTable inspect_shards(const std::vector<std::string>& paths,
                          const std::vector<std::string>& xxh3, Transport& transport) {
  if (paths.empty()) fail(ExitCode::kData, "the list of shards is empty");
  BERTHA_CHECK(xxh3.empty() || xxh3.size() == paths.size(), xxh3.size(), " hashes of ",
               paths.size(), " shards");
  const auto num_ranks = static_cast<size_t>(transport.size());
  Contribution mine;
  try {
    for (size_t s = static_cast<size_t>(transport.rank()); s < paths.size(); s += num_ranks) {
      mine.values.push_back(inspect_shard(paths[s]).num_samples);
    }
  } catch (...) {
    mine = {
        .kind = Contribution::Kind::kFailure, .values = {}, .failure = std::current_exception()};
  }
  const std::vector<std::vector<int64_t>> counts = gather_values(transport, mine);
  ShardTable table{.paths = paths, .num_seqs = {}, .first_ids = {}, .xxh3 = xxh3, .total_seqs = 0};
  table.xxh3.resize(paths.size());
  for (size_t s = 0; s < paths.size(); ++s) {
    table.first_ids.push_back(table.total_seqs);
    table.num_seqs.push_back(counts[s % num_ranks].at(s / num_ranks));
    table.total_seqs += table.num_seqs.back();
  }
  if (table.total_seqs == 0) {
    fail(ExitCode::kData, paths.front(), paths.size() > 1 ? " and the other shards" : "",
         ": no sample inside; prepare the data again");
  }
  return table;
}

}  // namespace bertha

#include "data/pipeline/shard_table.h"

#include <filesystem>

#include "data/files/hashing.h"
#include "data/format/manifest.h"
#include "data/format/shard_file.h"
#include "data/pipeline/agreement.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// By which ranks tell whether they see the same shards.
int64_t checksum_of_names(const std::vector<std::string>& paths) {
  uint32_t checksum = 0;
  for (const std::string& path : paths) {
    checksum = crc32c(std::filesystem::path(path).filename().string() + "\n", checksum);
  }
  return checksum;
}

/// A folder may differ between nodes. `seen`: of each rank count, checksum, and more.
void check_same_shards(const std::filesystem::path& folder,
                       const std::vector<std::vector<int64_t>>& seen) {
  for (size_t rank = 1; rank < seen.size(); ++rank) {
    if (seen[rank][0] != seen[0][0] || seen[rank][1] != seen[0][1]) {
      fail(ExitCode::kData, folder.string(), ": rank ", rank, " sees ", seen[rank][0],
           " shards and rank 0 ", seen[0][0],
           ", want the same names on all; copy the whole data set to every node");
    }
  }
}

}  // namespace

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
    mine.values = {std::ssize(paths), checksum_of_names(paths)};
    for (size_t s = static_cast<size_t>(transport.rank()); s < paths.size(); s += num_ranks) {
      mine.values.push_back(inspect_shard(paths[s]).num_samples);
    }
  } catch (...) {
    mine = {
        .kind = Contribution::Kind::kFailure, .values = {}, .failure = std::current_exception()};
  }
  const std::vector<std::vector<int64_t>> seen = gather_values(transport, mine);
  check_same_shards(std::filesystem::path(paths.front()).parent_path(), seen);
  ShardTable table{.paths = paths, .num_seqs = {}, .first_ids = {}, .xxh3 = xxh3, .total_seqs = 0};
  table.xxh3.resize(paths.size());
  for (size_t s = 0; s < paths.size(); ++s) {
    table.first_ids.push_back(table.total_seqs);
    table.num_seqs.push_back(seen[s % num_ranks].at(2 + s / num_ranks));
    table.total_seqs += table.num_seqs.back();
  }
  if (table.total_seqs == 0) {
    fail(ExitCode::kData, paths.front(), paths.size() > 1 ? " and the other shards" : "",
         ": no sample inside; prepare the data again");
  }
  return table;
}

}  // namespace bertha

#include "data/shard_table.h"

#include <algorithm>
#include <filesystem>

#include "data/agreement.h"
#include "data/hashing.h"
#include "data/pipeline.h"
#include "data/shard_file.h"
#include "data/shard_names.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// A file of the folder that looks like TFRecords or text still to be made into shards, or "".
std::string unconverted_file(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  std::string found;
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    const auto parts = numbered_name(name);
    const bool is_part = parts && parts->before == "part-";
    const bool is_record = name.ends_with(".tfrecord") || name.ends_with(".tfrecords");
    if ((is_part || is_record) && (found.empty() || name < found)) found = name;
  }
  return found;
}

}  // namespace

std::vector<std::string> list_shards(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    fail(ExitCode::kData, path, ": no such file or folder; give a folder of shards or one shard");
  }
  if (!std::filesystem::is_directory(status)) return {path};
  std::vector<std::string> shards;
  std::filesystem::directory_iterator entries(path, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    if (is_shard_name(entries->path().filename().string()))
      shards.push_back(entries->path().string());
  }
  if (error) fail(ExitCode::kData, path, ": the folder cannot be read: ", error.message());
  if (shards.empty()) {
    if (const std::string name = unconverted_file(path); !name.empty()) {
      fail(ExitCode::kData, path, ": holds ", name,
           " and no shard; make shards of TFRecord files by `bertha data convert ", path,
           " --output DIR`, of text by `bertha data prepare --text ", path, " ...`");
    }
    fail(ExitCode::kData, path,
         ": no shard in this folder; want files whose name contains \"part\" and ends in .hdf5 or "
         ".hdf, as `bertha data prepare` writes them, or part_00000 and so on");
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

SampleSet read_shard(const ShardTable& table, int64_t s, const SampleLimits& limits) {
  const auto at = static_cast<size_t>(s);
  const std::string& path = table.paths[at];
  if (!table.xxh3[at].empty()) {
    // Costs little: the samples are then read from memory.
    const std::string found = xxh3_of_file(path);
    if (found != table.xxh3[at]) {
      fail(ExitCode::kData, path, ": has the hash ", found, ", its manifest says ", table.xxh3[at],
           "; the file is damaged, prepare or copy it again");
    }
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

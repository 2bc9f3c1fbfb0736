#include "data/prepare/shard_distribution.h"

#include <numeric>
#include <optional>

#include "data/format/shard_names.h"
#include "data/format/shard_writer.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// Gives the samples of all parts, in order, to `take`.
void for_each_sample(const PartFiles& parts, const std::function<void(const SampleView&)>& take) {
  int64_t first_id = 0;
  for (const std::string& path : parts.paths) {
    const SampleSet samples = read_shard(path, first_id, parts.limits);
    for (int64_t i = 0; i < samples.size(); ++i) take(samples[i]);
    first_id += samples.size();
  }
}

}  // namespace

int64_t PartFiles::num_samples() const {
  return std::accumulate(samples.begin(), samples.end(), int64_t{0});
}

void distribute_shards(const PartFiles& parts, const std::vector<std::string>& paths,
                       ShardLayout layout, const ItemProgress& progress) {
  const std::vector<int64_t> sizes =
      shard_sizes(parts.num_samples(), static_cast<int64_t>(paths.size()));
  std::optional<ShardWriter> writer;
  size_t shard = 0;
  int64_t written = 0;
  for_each_sample(parts, [&](const SampleView& sample) {
    if (!writer) writer.emplace(paths.at(shard), layout, parts.limits);
    writer->append(sample);
    if (++written < sizes[shard]) return;
    writer->finish();
    writer.reset();
    written = 0;
    ++shard;
    if (progress) progress(static_cast<int64_t>(shard), std::ssize(paths));
  });
  BERTHA_CHECK(shard == paths.size() && !writer, shard, " shards of ", paths.size());
}

std::vector<int64_t> eval_selection(int64_t num_samples, int64_t num_selected) {
  if (num_samples < num_selected) {
    fail(ExitCode::kData, "--eval-samples ", num_selected, ", but the text gives ", num_samples,
         " samples; ask for at most that many or give more text");
  }
  const double ratio = static_cast<double>(num_samples) / static_cast<double>(num_selected);
  std::vector<int64_t> selection;
  for (int64_t i = 0; i < num_selected; ++i) {
    selection.push_back(static_cast<int64_t>(static_cast<double>(i) * ratio));
  }
  return selection;
}

void write_eval_shard(const PartFiles& parts, const std::string& path, ShardLayout layout,
                      int64_t num_selected) {
  const std::vector<int64_t> selection = eval_selection(parts.num_samples(), num_selected);
  ShardWriter writer(path, layout, parts.limits);
  size_t next = 0;
  for_each_sample(parts, [&](const SampleView& sample) {
    if (next == selection.size() || sample.id != selection[next]) return;
    writer.append(sample);
    ++next;
  });
  BERTHA_CHECK(next == selection.size(), next, " samples of ", selection.size());
  writer.finish();
}

}  // namespace bertha

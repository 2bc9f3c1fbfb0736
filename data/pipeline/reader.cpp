#include "data/pipeline/reader.h"

#include <filesystem>
#include <utility>

#include "data/files/hashing.h"
#include "data/format/manifest.h"
#include "data/format/shard_reader.h"
#include "data/pipeline/agreement.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// The number by which ranks find out whether they see the same shards.
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
           " shards, but rank 0 ", seen[0][0],
           ", want the same names on all ranks; copy the whole data set to every node");
    }
  }
}

/// Whether the shard at this place of the epoch's order is for this rank to read.
bool holds_shard(const ShardAssignment& assignment, int64_t place) {
  return assignment.rule != ShardAssignment::Rule::kByShard ||
         place % assignment.num_ranks == assignment.rank;
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
         " when the run started: the file was changed meanwhile; start the run again");
  }
  return samples;
}

ShardTable inspect_shards(const std::vector<std::string>& paths,
                          const std::vector<std::string>& xxh3, Transport& transport) {
  if (paths.empty()) fail(ExitCode::kData, "the list of shards is empty; give at least one shard");
  BERTHA_CHECK(xxh3.empty() || xxh3.size() == paths.size(), xxh3.size(), " hashes of ",
               paths.size(), " shards");
  const auto num_ranks = static_cast<size_t>(transport.size());
  const Contribution mine = contribution_of([&] {
    std::vector<int64_t> values{std::ssize(paths), checksum_of_names(paths)};
    for (size_t s = static_cast<size_t>(transport.rank()); s < paths.size(); s += num_ranks) {
      values.push_back(inspect_shard(paths[s]).num_samples);
    }
    return values;
  });
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
    fail(ExitCode::kData, paths.front(),
         paths.size() > 1 ? " and the other shards contain" : ": contains",
         " no sample; prepare the data again");
  }
  return table;
}

Slice even_slice(int64_t total, int64_t part, int64_t num_parts) {
  return {.begin = part * total / num_parts, .end = (part + 1) * total / num_parts};
}

WindowReader::WindowReader(const ShardTable& table, const SampleLimits& limits,
                           const ShardAssignment& assignment,
                           std::unique_ptr<SampleWindows> windows)
    : table_(table), limits_(limits), assignment_(assignment), windows_(std::move(windows)) {}

std::optional<LoadedWindow> WindowReader::next(const std::function<bool()>& stop) {
  LoadedWindow window{.plan = windows_->next(), .shards = {}};
  for (size_t i = 0; i < window.plan.shards.size(); ++i) {
    if (stop()) return std::nullopt;
    const bool mine = holds_shard(assignment_, window.plan.first_place + static_cast<int64_t>(i));
    window.shards.push_back(mine ? load(window.plan.shards[i]) : nullptr);
  }
  std::erase_if(in_memory_, [](const auto& entry) { return entry.second.expired(); });
  return window;
}

std::shared_ptr<const SampleSet> WindowReader::load(int64_t shard) {
  if (auto samples = in_memory_[shard].lock()) return samples;
  auto samples = std::make_shared<const SampleSet>(read_shard(table_, shard, limits_));
  in_memory_[shard] = samples;
  return samples;
}

StepAssembler::StepAssembler(const ShardAssignment& assignment, int64_t first_step,
                             std::function<std::optional<LoadedWindow>()> next_window,
                             std::optional<MaskDrawer> masks)
    : assignment_(assignment),
      slice_(even_slice(assignment.global_batch_seqs, assignment.rank, assignment.num_ranks)),
      step_(first_step),
      next_window_(std::move(next_window)),
      masks_(std::move(masks)) {}

bool StepAssembler::is_mine(int64_t slot, const ShardRow& sample) const {
  if (assignment_.rule == ShardAssignment::Rule::kByShard) {
    return holds_shard(assignment_, window_.plan.first_place + sample.shard_in_window);
  }
  return slot >= slice_.begin && slot < slice_.end;
}

std::optional<StepSamples> StepAssembler::next() {
  const Slice walked = assignment_.rule == ShardAssignment::Rule::kOwnOrder
                           ? slice_
                           : Slice{.begin = 0, .end = assignment_.global_batch_seqs};
  StepSamples step;
  step.step = step_++;
  step.samples.reserve(length_of_step_);
  for (int64_t slot = walked.begin; slot < walked.end; ++slot) {
    while (taken_ == window_.plan.order.size()) {
      window_ = {};  // frees the old window before requesting the next one
      taken_ = 0;
      std::optional<LoadedWindow> window = next_window_();
      if (!window) return std::nullopt;
      window_ = std::move(*window);
    }
    if (slot == walked.begin) step.epoch = window_.plan.epoch;
    const ShardRow& place = window_.plan.order[taken_++];
    if (!is_mine(slot, place)) continue;
    step.slots.push_back(slot);
    const SampleView sample =
        (*window_.shards[static_cast<size_t>(place.shard_in_window)])[place.row];
    if (masks_) {
      masks_->append(sample, window_.plan.epoch, step.samples);
    } else {
      step.samples.append(sample);
    }
  }
  constexpr int64_t kSpareShare = 8;  // steps differ less than this
  length_of_step_ = step.samples.length();
  length_of_step_.tokens += length_of_step_.tokens / kSpareShare;
  length_of_step_.masked += length_of_step_.masked / kSpareShare;
  return step;
}

}  // namespace bertha

#include "data/pipeline/reader.h"

#include <utility>

namespace bertha {
namespace {

/// Whether the shard at this place of the epoch's order is for this rank to read.
bool holds_shard(const ShardAssignment& assignment, int64_t place) {
  return assignment.rule != ShardAssignment::Rule::kByShard ||
         place % assignment.num_ranks == assignment.rank;
}

}  // namespace

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
                             std::function<std::optional<LoadedWindow>()> next_window)
    : assignment_(assignment),
      slice_(even_slice(assignment.global_batch_seqs, assignment.rank, assignment.num_ranks)),
      step_(first_step),
      next_window_(std::move(next_window)) {}

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
  for (int64_t slot = walked.begin; slot < walked.end; ++slot) {
    while (taken_ == window_.plan.order.size()) {
      window_ = {};  // frees the old window before the next one is asked for
      taken_ = 0;
      std::optional<LoadedWindow> window = next_window_();
      if (!window) return std::nullopt;
      window_ = std::move(*window);
    }
    if (slot == walked.begin) step.epoch = window_.plan.epoch;
    const ShardRow& sample = window_.plan.order[taken_++];
    if (!is_mine(slot, sample)) continue;
    step.slots.push_back(slot);
    step.samples.append((*window_.shards[static_cast<size_t>(sample.shard_in_window)])[sample.row]);
  }
  return step;
}

}  // namespace bertha

#include "harness/train/probe.h"

#include <algorithm>

#include "harness/train/evaluate.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {
namespace {

constexpr int64_t kTimesBytes = sizeof(RankTimes);

}  // namespace

StepProbe::StepProbe(const ModelParts& parts, Collectives& collectives)
    : parts_(parts),
      collectives_(collectives),
      pinned_(parts.device->allocate_pinned(static_cast<int64_t>(sizeof(Arrival)))),
      times_(parts.device->allocate(collectives.size() * kTimesBytes)),
      pinned_times_(parts.device->allocate_pinned(collectives.size() * kTimesBytes)) {}

// Gathers with a sum to which other ranks add zero: sums cover all ranks, however they are grouped.
void StepProbe::gather(const RankTimes& own) {
  const int64_t ranks = collectives_.size();
  auto* const all = static_cast<RankTimes*>(pinned_times_.data());
  std::fill_n(all, ranks, RankTimes{});
  all[collectives_.rank()] = own;
  Stream& stream = collectives_.stream();
  parts_.device->copy(stream, times_.data(), all, ranks * kTimesBytes);
  collectives_.all_reduce_sum(View(times_.data(), DType::kF32, {ranks * kRankNumbers}));
  parts_.device->copy(stream, all, times_.data(), ranks * kTimesBytes);
}

void StepProbe::capture(Bert& model, const Optimizer& optimizer,
                        const std::optional<RankTimes>& times) {
  sum_stats_over_ranks(model, parts_, collectives_);
  has_times_ = times.has_value();
  if (times) gather(*times);
  auto* scalars = static_cast<Arrival*>(pinned_.data());
  Stream& stream = collectives_.stream();
  parts_.device->copy(stream, &scalars->stats, model.stats().data, sizeof(LossStats));
  parts_.device->copy(stream, &scalars->lamb, optimizer.state().data, sizeof(LambState));
  arrived_ = parts_.device->make_event();
  stream.record(*arrived_);
  // The sums restart at zero after they have been captured.
  parts_.stream->wait_for(*arrived_);
  model.reset_stats();
}

StepScalars StepProbe::take() {
  arrived_.reset();
  const auto* arrival = static_cast<const Arrival*>(pinned_.data());
  StepScalars scalars{.stats = arrival->stats, .lamb = arrival->lamb};
  const auto* times = static_cast<const RankTimes*>(pinned_times_.data());
  if (has_times_) scalars.ranks.assign(times, times + collectives_.size());
  return scalars;
}

std::optional<StepScalars> StepProbe::poll() {
  if (arrived_ == nullptr || !arrived_->is_done()) return std::nullopt;
  return take();
}

StepScalars StepProbe::wait() {
  BERTHA_CHECK(arrived_ != nullptr, "no capture to wait for");
  arrived_->wait_on_host();
  return take();
}

}  // namespace bertha

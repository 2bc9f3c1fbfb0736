#include "harness/train/probe.h"

#include "harness/train/evaluate.h"

namespace bertha {

StepProbe::StepProbe(const ModelParts& parts, Collectives& collectives)
    : parts_(parts),
      collectives_(collectives),
      pinned_(parts.device->allocate_pinned(static_cast<int64_t>(sizeof(StepScalars)))) {}

void StepProbe::capture(const Bert& model, const Optimizer& optimizer) {
  sum_stats_over_ranks(model, parts_, collectives_);
  auto* scalars = static_cast<StepScalars*>(pinned_.data());
  Stream& stream = collectives_.stream();
  parts_.device->copy(stream, &scalars->stats, model.stats().data, sizeof(LossStats));
  parts_.device->copy(stream, &scalars->lamb, optimizer.state().data, sizeof(LambState));
  arrived_ = parts_.device->make_event();
  stream.record(*arrived_);
  // The next step resets the sums: it starts after they have left.
  parts_.stream->wait_for(*arrived_);
}

StepScalars StepProbe::take() {
  arrived_.reset();
  return *static_cast<const StepScalars*>(pinned_.data());
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

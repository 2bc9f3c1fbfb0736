#include "data/prepare/progress_meter.h"

namespace bertha {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kInterval = std::chrono::milliseconds(100);

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

/// The share of the phase that is done, by shards in their phase and else by text.
double share_done(const PrepareProgress& state) {
  const bool shards =
      state.phase == PreparePhase::kWritingShards || state.phase == PreparePhase::kCheckingShards;
  const int64_t done = shards ? state.shards_done : state.text_bytes_done;
  const int64_t total = shards ? state.shards_total : state.text_bytes_total;
  return total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0;
}

}  // namespace

void ProgressMeter::tell(Urgency urgency) {
  const Clock::time_point now = Clock::now();
  if (!callback_ || (urgency == Urgency::kWhenDue && now - last_told_ < kInterval)) return;
  last_told_ = now;
  state_.elapsed_ms = ms_between(phase_start_, now);
  const double share = share_done(state_);
  state_.eta_ms = share > 0 ? state_.elapsed_ms * (1 - share) / share : -1;
  callback_(state_);
}

}  // namespace bertha

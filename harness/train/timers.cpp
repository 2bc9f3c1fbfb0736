#include "harness/train/timers.h"

namespace bertha {

std::unique_ptr<Event> PhaseTimers::record() {
  std::unique_ptr<Event> event = device_.make_event();
  stream_.record(*event);
  return event;
}

void PhaseTimers::begin(Phase phase) {
  end();
  device_.push_range(kPhaseNames[static_cast<size_t>(phase)]);
  spans_.push_back({.phase = phase, .begin = record(), .end = nullptr});
}

void PhaseTimers::end() {
  if (spans_.empty() || spans_.back().end != nullptr) return;
  spans_.back().end = record();
  device_.pop_range();
}

std::array<double, kNumPhases> PhaseTimers::take_totals_ms() {
  std::array<double, kNumPhases> totals_ms{};
  while (!spans_.empty() && spans_.front().end != nullptr && spans_.front().end->is_done()) {
    const Span& span = spans_.front();
    totals_ms[static_cast<size_t>(span.phase)] += span.end->ms_since(*span.begin);
    spans_.pop_front();
  }
  return totals_ms;
}

}  // namespace bertha

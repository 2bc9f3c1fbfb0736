#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>

#include "kernels/base/device.h"

namespace bertha {

/// Communication runs on a separate stream: kCommunication is only the part of the reduction that
/// backward does not cover, and kForward begins with the rest of the gathering of weights.
enum class Phase : uint8_t { kForward, kBackward, kCommunication, kOptimizer };
inline constexpr size_t kNumPhases = 4;
inline constexpr std::array<const char*, kNumPhases> kPhaseNames{"forward", "backward",
                                                                 "communication", "optimizer"};

/// Measures the phases of a step on the device's stream without waiting for it: each mark records
/// an event, and totals are computed from events that have completed.
class PhaseTimers {
 public:
  PhaseTimers(Device& device, Stream& stream) : device_(device), stream_(stream) {}

  /// Work enqueued from here on belongs to `phase`; profilers show a range of that name.
  void begin(Phase phase);
  void end();

  /// Milliseconds per phase since the last call; work still in flight counts next time.
  std::array<double, kNumPhases> take_totals_ms();

  Device& device() const { return device_; }

 private:
  struct Span {
    Phase phase;
    std::unique_ptr<Event> begin;
    std::unique_ptr<Event> end;
  };

  std::unique_ptr<Event> record();

  Device& device_;
  Stream& stream_;
  std::deque<Span> spans_;
};

}  // namespace bertha

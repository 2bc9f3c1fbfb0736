#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "harness/comm/watchdog.h"
#include "harness/train/loss_jump.h"
#include "harness/train/probe.h"
#include "harness/train/run.h"

namespace bertha {

/// Steps whose gradient norm or loss is out of the ordinary, counted from 1.
struct Spike {
  int64_t first_step = 0;
  int64_t last_step = 0;
};

/// What decides how long a run goes on, and from where: watchdog and spikes. (Signals are a flag
/// of the process, signals.h.)
struct Lifecycle {
  std::unique_ptr<Watchdog> watchdog = nullptr;
  int64_t known_spikes = 0;    // on the device's counter, as of the last capture that arrived
  int64_t earlier_spikes = 0;  // of this process, in steps that were thrown away
  std::optional<Spike> spike = std::nullopt;  // the first known one that is to be left out
  int64_t rewinds = 0;                        // since the last checkpoint
};

/// Maximum number of rewinds without a new checkpoint.
inline constexpr int64_t kMostRewinds = 3;

/// Why the loop ended. Higher values win when ranks disagree.
enum class Stop : int { kNo, kSpike, kEndOfPlan, kTarget, kRequeue, kNumeric };

/// What the scalars of a capture mean for the run.
struct Findings {
  int64_t new_spikes = 0;  // since the capture before
  int64_t all_spikes = 0;  // of this process
  std::optional<LossJump> jump = {};
};

/// Compares the scalars that were captured after `step` with the usual ones. Notes skipped updates
/// in the state, and the first spike if the run goes back from spikes.
Findings examine(Lifecycle& lifecycle, Run& run, const StepScalars& scalars, int64_t step);

/// Whether the run goes back from spikes: optimizer.gradient_spike.
bool goes_back(const Run& run);

/// Why this rank would end the run after this step.
Stop stop_of_this_rank(const Lifecycle& lifecycle, Run& run);

/// Restores the newest checkpoint from before the spike, or the start of the run, and continues
/// with the batch after the spike: those from the checkpoint to the spike are left out for good. A
/// run that is stopped before the next checkpoint finds the same spike again and does the same. The
/// updates after a spike of the gradient norm were held (SpikeRule), so that it is the first one.
///
/// All ranks call it with the same spike. Returns a sentence about it.
/// Errors    Error(kNumeric) on all ranks after kMostRewinds rewinds.
std::string rewind(Lifecycle& lifecycle, Run& run);

}  // namespace bertha

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

/// Steps with an unusually large gradient norm or loss, counted from 1.
struct Spike {
  int64_t first_step = 0;
  int64_t last_step = 0;
};

/// Whether a run continues, and from which step: watchdog and spikes. (Signals set a flag of the
/// process, signals.h.)
struct Lifecycle {
  std::unique_ptr<Watchdog> watchdog = nullptr;
  int64_t known_spikes = 0;    // the device's counter in the last capture that arrived
  int64_t earlier_spikes = 0;  // of this process, in steps that were discarded
  std::optional<Spike> spike = std::nullopt;  // the first known one to leave out
  int64_t rewinds = 0;                        // since the last checkpoint
};

/// Maximum number of rewinds without a new checkpoint.
inline constexpr int64_t kMaxRewinds = 3;

/// Why the loop ended. Higher values win when ranks disagree.
enum class Stop : int { kNo, kSpike, kEndOfPlan, kTarget, kRequeue, kNumeric };

/// Spikes that a capture shows.
struct Findings {
  int64_t new_spikes = 0;  // since the previous capture
  int64_t all_spikes = 0;  // in this process
  std::optional<LossJump> jump = {};
};

/// Compares the scalars that were captured after `step` with the usual ones. Notes skipped updates
/// in the state, and the first spike if the run rewinds.
Findings examine(Lifecycle& lifecycle, Run& run, const StepScalars& scalars, int64_t step);

/// Whether optimizer.gradient_spike is rewind.
bool rewinds_on_spikes(const Run& run);

/// This rank's reason to end the run after this step.
Stop stop_of_this_rank(const Lifecycle& lifecycle, Run& run);

/// Restores the newest checkpoint from before the spike, or the start of the run, and continues
/// with the batch after the spike: batches from the checkpoint to the spike are left out for good.
/// A run that is stopped before the next checkpoint finds the same spike again and does the same.
/// Updates after a spike of the gradient norm were withheld (SpikeRule), so it is the first one.
///
/// All ranks call it with the same spike. Returns a message about it.
/// Errors    Error(kNumeric) on all ranks after kMaxRewinds rewinds.
std::string rewind(Lifecycle& lifecycle, Run& run);

}  // namespace bertha

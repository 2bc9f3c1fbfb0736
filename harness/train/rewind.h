#pragma once

#include "harness/train/run.h"

namespace bertha {

/// How often a run goes back before a new checkpoint shows that it has got on.
inline constexpr int64_t kMostRewinds = 3;

/// Whether the run goes back from spikes: optimizer.gradient_spike.
bool goes_back(const TrainingRun& run);

/// Looks at all steps so far; afterwards every rank knows of the same spike, or of none. Blocks:
/// the host. All ranks call it.
bool finds_spike(TrainingRun& run);

/// Puts back the newest checkpoint from before the spike, or the start of the run, and goes on with
/// the batch behind it: those from the checkpoint to the spike are left out for good. A run that is
/// stopped before the next checkpoint finds the same spike again and does the same. The updates
/// after a spike of the gradient norm were held (SpikeRule), so that it is the first one.
///
/// All ranks call it with a spike.
/// Errors    Error(kNumeric) on all ranks where it has gone back kMostRewinds times already.
void rewind(TrainingRun& run);

}  // namespace bertha

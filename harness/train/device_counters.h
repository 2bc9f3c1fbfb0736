#pragma once

#include <optional>

#include "harness/train/run.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

// What the host reads of the device's counters, and which decisions rest on them.

/// Writes the record of a probe that has arrived, if its step has one, and notes its counters.
void report_probe(TrainingRun& run, const std::optional<StepScalars>& scalars);
/// The same for the pending probe, if there is one. Blocks: the host, until it has arrived.
void finish_probe(TrainingRun& run);
/// At the end: also a record of the steps since the last one, if there are any. All ranks call it.
void record_last_steps(TrainingRun& run);
/// After a step: captures the probe if the step has a record, and otherwise so often that a row of
/// stop_after_skips skipped updates cannot go on unseen for long: for less than as many again, and
/// the steps that the probe takes to arrive. All ranks capture after the same steps.
void capture_probe_if_due(TrainingRun& run);
/// Captures the probe now, after the pending one. All ranks call it.
void capture_probe(TrainingRun& run, bool is_logged);

/// Looks at how much memory of the device is in use.
void note_memory(TrainingRun& run);
/// Counters of the optimizer as they are now, the same on all ranks. Blocks: the host.
LambState read_lamb_state(TrainingRun& run);
/// Until then the steps since the last look count as successful ones. Blocks: the host.
void look_up_skips(TrainingRun& run);
/// Whether too many updates in a row have been skipped since the start, as far as is known.
bool is_numeric_failure(const TrainingRun& run);

}  // namespace bertha

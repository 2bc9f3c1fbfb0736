#pragma once

#include <string>
#include <vector>

#include "harness/mlperf/log_parser.h"

namespace bertha {

/// What the evaluations of a log have against the benchmark's rule: the first one whose samples are
/// not those that eval_interval_samples() of the logged global batch wants. "" when there is none.
///
/// An evaluation may be a batch and 0.2 % away, for steps are whole and packed batches have no
/// fixed count of sequences; one before any training is free, and so is that at the end of a run.
///
/// Needs     eval_accuracy and global_batch_size records as key_rules() wants them; others are
///           skipped.
std::string eval_cadence_complaint(const std::vector<MlperfRecord>& records);

}  // namespace bertha

#pragma once

#include <string>

#include "harness/config/config.h"
#include "harness/report/run_records.h"

namespace bertha {

// The lines of rank 0 for people: one per log step, at most 160 columns, searchable by word.

/// step 120/3680 smp 46.1k loss 4.212 mlm 0.412 lr 9.1e-4 gn 0.93 | 61 ms (data 0.3 fwd 18
/// bwd 35 comm 4.0 opt 4.1) 6.27k seq/s 1.91M tok/s MFU 54% ETA 3m31s
/// Tokens per second and utilization give way when the line would be too long.
std::string step_line(const StepRecord& record, const RunFacts& facts);

/// eval step 335 samples 150k mlm accuracy 0.5612 (target 0.7200) loss 2.113 nsp 0.931 | 2.3 s
/// target_accuracy is that of DataFacts.
std::string eval_line(const EvalRecord& record, double target_accuracy);

/// What is trained, on what, until when.
std::string start_line(const Config& config, const RunFacts& facts);

/// How many sequences there are, and the target that they give.
std::string data_line(const TrainConfig& train, const DataFacts& facts);

}  // namespace bertha

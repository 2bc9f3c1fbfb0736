#pragma once

#include <cstdint>
#include <string>

#include "harness/config/config.h"
#include "harness/report/run_records.h"

namespace bertha {

// The lines of rank 0 for people: one per log step, with its fields aligned below the line before,
// and searchable by word.

/// step  120/3,680  mlm loss 4.212  accuracy 0.412  6.27k seq/s  end in 3m31s
/// Losses and accuracy cover the masked tokens since the line before. The more columns, the more
/// fields, and then the longer their words; metrics.jsonl has all of them.
/// columns: of the terminal or log; at least 80.
std::string step_line(const StepRecord& record, const RunFacts& facts, int64_t columns);

/// eval  step 335  accuracy 0.5612 (target 0.7200)  mlm loss 2.113  nsp accuracy 0.931  2.3 s
/// target_accuracy: as in DataFacts.
std::string eval_line(const EvalRecord& record, double target_accuracy, int64_t columns);

/// ", attention grouped, GELU GEMMs library, graphs", to follow the name of a device. Without the
/// kernels of fp8.
std::string kernels_text(const KernelFacts& kernels);

/// What is trained, on what, until when.
std::string start_line(const Config& config, const RunFacts& facts);

/// How many sequences there are, and the target that they give.
std::string data_line(const TrainConfig& train, const DataFacts& facts);

}  // namespace bertha

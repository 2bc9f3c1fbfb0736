#pragma once

#include <cstdint>
#include <string>

#include "harness/config/config.h"
#include "harness/report/run_records.h"

namespace bertha {

// Rank 0's lines for people: one per log step, with fields aligned to the previous line
// and searchable words.

/// step  120/3,680  mlm loss 4.212  accuracy 0.412  6.27k seq/s  end in 3m31s
/// Losses and accuracy cover the masked tokens since the previous line. More columns allow more
/// fields, then longer words; metrics.jsonl has all fields.
/// columns: width of the terminal or log; at least 80.
std::string step_line(const StepRecord& record, const RunFacts& facts, int64_t columns);

/// eval  step 335  accuracy 0.5612 (target 0.7200)  mlm loss 2.113  nsp accuracy 0.931  2.3 s
/// target_accuracy: as in DataFacts.
std::string eval_line(const EvalRecord& record, double target_accuracy, int64_t columns);

/// ", attention grouped, GELU GEMMs library, graphs", to append to the name of a device. Without
/// fp8 kernels.
std::string kernels_text(const KernelFacts& kernels);

/// The model, the device and the end of a run.
std::string start_line(const Config& config, const RunFacts& facts);

/// The number of sequences, and the target that follows from the data.
std::string data_line(const TrainConfig& train, const DataFacts& facts);

}  // namespace bertha

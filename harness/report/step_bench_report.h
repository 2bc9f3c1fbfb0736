#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/config.h"
#include "harness/report/report.h"
#include "harness/report/run_records.h"
#include "kernels/base/figures.h"

namespace bertha {

/// The result of `bertha bench step`. Steps are the timed ones; sums and means are over all ranks
/// if the name says global, and the time of a step is that of its slowest rank.
struct StepBenchReport {
  // The configuration.
  std::string model;
  GeluForm gelu = GeluForm::kTanh;
  std::string device;
  KernelFacts kernels = {};
  std::string precision;  // "bf16", "bf16 with fp8 GEMMs"
  int64_t ranks = 1;
  int64_t micro_batches = 1;  // per rank and step
  int64_t warmup_steps = 0;
  std::vector<double> step_ms;  // [steps]
  // The mean step.
  double seqs_global = 0;
  double tokens_global = 0;
  double masked_global = 0;
  double most_tokens_per_rank = 0;
  double model_flops_global = 0;     // GEMMs only, 2 per multiply-add, backward twice forward
  std::array<double, 4> phase_ms{};  // forward, backward, communication, optimizer on rank 0
  double peak_flops_per_second = 0;  // of one device, for comparison; 0 = unknown
  int64_t peak_memory_bytes = 0;     // in use on the device with the most in use
  int64_t total_memory_bytes = 0;    // of that device
  double joules_global = 0;          // all GPUs, counted by their driver; 0 = unknown
  std::vector<OperationTime> operations = {};  // on rank 0, longest first; empty = not timed
  // Over all steps, including the warm-up, to check that the timed steps train.
  double loss = 0;
  int64_t skipped_updates = 0;
};

/// Rates are means over the timed steps.
Report report_of(const StepBenchReport& found);

}  // namespace bertha

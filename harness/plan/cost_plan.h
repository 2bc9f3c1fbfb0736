#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/config/config.h"
#include "harness/config/run_plan.h"
#include "kernels/base/dtype.h"

namespace bertha {

/// Inputs of a run's cost in addition to its configuration.
struct PlanRequest {
  Config config;
  int64_t ranks = 1;
  int64_t ranks_per_node = 0;      // 0 = all on one node
  DType io = DType::kF32;          // of weights, gradients and activations
  bool fp8 = false;                // with fp8 GEMMs
  bool on_gpu = false;             // includes a GPU's memory in addition to the tensors
  double mean_seq_tokens = 0;      // live tokens per sequence; 0 = every sequence at full length
  double mean_squared_tokens = 0;  // for the same sequences
  double mean_masked_per_seq = 0;  // 0 = the maximum
};

struct MemoryClass {
  std::string name;
  int64_t bytes = 0;  // per rank
};

/// Memory and FLOPs of a run, from its configuration alone; allocates and reads nothing.
struct CostPlan {
  int64_t parameters = 0;            // elements, vocabulary padded
  int64_t seqs_per_micro_batch = 0;  // per rank
  std::vector<MemoryClass> memory;   // per rank, on the device
  int64_t memory_bytes = 0;          // their sum
  int64_t flops_per_seq = 0;         // forward and backward
  double flops_per_run = 0;
  RunPlan run;
};

/// Errors    Error(kUsage) for impossible shapes.
CostPlan make_cost_plan(const PlanRequest& request);

/// The largest count that fits, by doubling and halving; 0 = not even one. fits(n) must be false
/// from some n on.
int64_t largest_fitting(const std::function<bool(int64_t)>& fits);

/// How the step of a request would fit into the given memory.
struct MemoryFit {
  int64_t seqs_per_micro_batch = 0;  // maximum that fits, in training and evaluation; 0 = none
  int64_t accumulation_steps = 0;    // minimum for micro-batches that fit; 0 = none
};
MemoryFit fit_into(const PlanRequest& request, int64_t memory_bytes);

/// FLOP/s of a whole training step of BERT-large with 24,576 tokens on one H200: see
/// kernels/measured/step.md. Smaller steps and models reach less.
inline constexpr double kStepFlopsPerSecond16Bit = 556e12;
inline constexpr double kStepFlopsPerSecondFp8 = 790e12;

/// Time of a run on H200s at that rate, if communication between ranks took no time.
struct TimeEstimate {
  double flops_per_second = 0;  // per rank
  double step_ms = 0;
  double seqs_per_second = 0;  // all ranks together
  double seconds = 0;          // all steps and evaluations
};

/// eval_seqs: sequences in the evaluation set.
TimeEstimate estimate_time(const PlanRequest& request, const CostPlan& cost, int64_t eval_seqs);

/// "141GB", "80GiB", "512MiB", "1000000": decimal and binary units.
/// Error(kUsage) otherwise, naming --gpu-memory.
int64_t parse_bytes(const std::string& text);

}  // namespace bertha

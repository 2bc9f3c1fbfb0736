#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/error.h"

namespace bertha {

/// The ranks of a record: see rank_times.h. Milliseconds per step.
struct RankSummary {
  int64_t slowest = 0;            // the rank with the longest forward + backward
  double slowest_compute_ms = 0;  // its forward + backward; 0 = not known
  double others_compute_ms = 0;   // the median of the others; 0 = there are none
  int64_t longest_waiting = 0;    // the rank that waited longest for data
  double longest_wait_ms = 0;
  double mean_wait_ms = 0;
  double power_watts = 0;    // of all GPUs together; 0 = not known
  double lowest_sm_mhz = 0;  // of all GPUs; 0 = not known
};

/// What the steps since the last record looked like. Losses and accuracy are means over their
/// masked tokens and sequences, times wall-clock averages in milliseconds per step; the rest
/// describes the last step.
struct StepRecord {
  int64_t step = 0;
  int64_t samples = 0;
  double loss = 0;                      // masked-token + train.nsp_weight * next-sentence
  double mlm_loss = 0;                  // of masked tokens alone, as evaluations have it
  std::optional<double> nsp_loss = {};  // none = train.nsp_weight 0: that head is not trained
  double mlm_accuracy = 0;              // of training batches, with dropout
  double learning_rate = 0;
  double gradient_norm = 0;
  double loss_scale = 1;
  int64_t skipped_steps = 0;
  int64_t spikes = 0;  // steps with a spike of the gradient norm since the start of the process
  double step_ms = 0;
  double data_wait_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;
  double communication_ms = 0;
  double optimizer_ms = 0;
  double seqs_per_second = 0;    // all ranks
  double tokens_per_second = 0;  // all ranks
  double flops_per_second = 0;   // model FLOPs, all ranks
  double eta_seconds = 0;        // to the last step
  double token_imbalance = 1;    // most tokens of a rank / mean
  double fp8_saturated = 0;      // share of the elements rounded to fp8 that were too large for it
  RankSummary ranks = {};
  int64_t memory_bytes = 0;  // most in use on the first rank's device so far
};

struct EvalRecord {
  int64_t step = 0;
  int64_t samples = 0;
  double mlm_accuracy = 0;
  double mlm_loss = 0;
  std::optional<double> nsp_accuracy = {};  // none = train.nsp_weight 0
  double seconds = 0;
  double seqs_per_second_since_last = 0;  // training throughput, for tracked_stats
};

/// Which kernels the passes of a model run, where a device has several kinds; "" = it has one.
struct KernelFacts {
  std::string attention = {};   // "grouped (slower: a head size of 96, want at most 64)"
  std::string gelu_gemms = {};  // "own from 1921 tokens"
  std::string fp8_gemms = {};   // "qkv forward+dgrad+wgrad, ..."; "" = none
  bool graphs = false;          // forward and backward are CUDA graphs
};

/// What the calls of one operation took together, or took in the mean step. The GEMMs of linear
/// layers count apart by shape: "linear_fwd 24576x3072x1024" is [T x N x K].
struct OperationTime {
  std::string name;
  double calls = 0;
  double ms = 0;     // between events before and after each call, on the stream
  double flops = 0;  // of GEMMs, 2 per multiply-add; 0 where the shapes do not tell
  double bytes = 0;  // tensors read and written, each once per reading and writing; 0 for GEMMs
};

/// What the logs say once, before training.
struct RunFacts {
  int64_t world_size = 1;
  int64_t parameters = 0;
  int64_t max_steps = 0;             // of the plan, by train.max_samples too
  int64_t first_step = 0;            // resumed from here
  int64_t masked_per_seq = 0;        // most masked tokens of a training sequence
  bool has_random_head = false;      // for masked tokens, although weights were read
  double peak_flops_per_second = 0;  // of all devices, for the utilization; 0 = not known
  std::string device = {};
  KernelFacts kernels = {};
  std::vector<std::string> tensor_names = {};
};

/// How a start of a run ended.
struct RunEnd {
  std::string status = {};  // "success" or "aborted"
  int64_t samples = 0;      // trained
  ExitCode exit_code = ExitCode::kSuccess;
  std::optional<double> joules = {};  // of all GPUs, over all parts of the run; none = not known

  /// Empty if the energy is not known, or nothing was trained.
  std::optional<double> joules_per_sample() const {
    if (!joules || samples == 0) return std::nullopt;
    return *joules / static_cast<double>(samples);
  }
};

/// What is known once the data has been opened, which the rules allow after run_start only.
struct DataFacts {
  int64_t train_samples_per_epoch = 0;
  int64_t eval_samples = 0;
  double constant_answer_accuracy = 0;  // of the best constant answer on the evaluation set
  double target_accuracy = 0;           // see target_of(); 0 = none
};

}  // namespace bertha

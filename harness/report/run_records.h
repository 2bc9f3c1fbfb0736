#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/base/error.h"

namespace bertha {

/// The ranks in a record: see rank_times.h. Milliseconds per step.
struct RankSummary {
  int64_t slowest = 0;            // the rank with the longest forward + backward
  double slowest_compute_ms = 0;  // its forward + backward; 0 = unknown
  double others_compute_ms = 0;   // the median of the other ranks; 0 = none
  int64_t longest_waiting = 0;    // the rank that waited longest for data
  double longest_wait_ms = 0;
  double mean_wait_ms = 0;
  double power_watts = 0;    // all GPUs together; 0 = unknown
  double lowest_sm_mhz = 0;  // minimum over all GPUs; 0 = unknown
};

/// The steps since the last record. Losses and accuracy are means over their masked tokens and
/// sequences, times are wall-clock averages in milliseconds per step; the other fields describe the
/// last step.
struct StepRecord {
  int64_t step = 0;
  int64_t samples = 0;
  double loss = 0;                      // masked-token + train.nsp_weight * next-sentence
  double mlm_loss = 0;                  // masked tokens only, as in evaluations
  std::optional<double> nsp_loss = {};  // none = train.nsp_weight 0: the head is not trained
  double mlm_accuracy = 0;              // on training batches, with dropout
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
  double token_imbalance = 1;    // maximum number of tokens per rank / mean
  double fp8_saturated = 0;      // share of elements rounded to fp8 that exceeded its range
  RankSummary ranks = {};
  int64_t memory_bytes = 0;  // peak in use on rank 0's device so far
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

/// The kernels of a model's passes if the device has several kinds; "" = it has one.
struct KernelFacts {
  std::string attention = {};   // "grouped (slower: a head size of 96, want at most 64)"
  std::string gelu_gemms = {};  // "own from 1921 tokens"
  std::string fp8_gemms = {};   // "qkv forward+dgrad+wgrad, ..."; "" = none
  bool graphs = false;          // forward and backward are CUDA graphs
};

/// Total cost of the calls of one operation, or their cost in the mean step. The GEMMs of linear
/// layers are listed by shape: "linear_fwd 24576x3072x1024" is [T x N x K].
struct OperationTime {
  std::string name;
  double calls = 0;
  double ms = 0;     // between events before and after each call, on the stream
  double flops = 0;  // of GEMMs, 2 per multiply-add; 0 if the shapes do not determine it
  double bytes = 0;  // tensors read and written, counted once per access; 0 for GEMMs
};

/// Facts that the logs state once, before training.
struct RunFacts {
  int64_t world_size = 1;
  int64_t parameters = 0;
  int64_t max_steps = 0;             // of the plan, also limited by train.max_samples
  int64_t first_step = 0;            // resumed from here
  int64_t masked_per_seq = 0;        // maximum number of masked tokens per training sequence
  bool has_random_head = false;      // a random masked-token head, although weights were read
  double peak_flops_per_second = 0;  // of all devices, for the utilization; 0 = unknown
  std::string device = {};
  KernelFacts kernels = {};
  std::vector<std::string> tensor_names = {};
};

/// How a start of a run ended.
struct RunEnd {
  std::string status = {};  // "success" or "aborted"
  int64_t samples = 0;      // trained
  ExitCode exit_code = ExitCode::kSuccess;
  std::optional<double> joules = {};  // all GPUs, all processes of the run; none = unknown

  /// Empty if the energy is unknown or nothing was trained.
  std::optional<double> joules_per_sample() const {
    if (!joules || samples == 0) return std::nullopt;
    return *joules / static_cast<double>(samples);
  }
};

/// Facts that are known once the data are open, which the rules allow only after run_start.
struct DataFacts {
  int64_t train_samples_per_epoch = 0;
  int64_t eval_samples = 0;
  double constant_answer_accuracy = 0;  // of the best constant answer on the evaluation set
  double target_accuracy = 0;           // see target_of(); 0 = none
};

}  // namespace bertha

#pragma once

#include <cstdint>
#include <string>

namespace bertha {

// All settings of a run, as plain structs: units in names, defaults in place. The YAML key
// of a field is its path, e.g. train.global_batch_seqs; harness/config/keys.cpp has a row for each.

struct ModelConfig {
  std::string name = "bert-large";
  int64_t layers = 24;
  int64_t hidden = 1024;
  int64_t heads = 16;
  int64_t feed_forward = 4096;
  int64_t vocab_size = 30522;   // padded inside to a multiple of 8
  int64_t max_positions = 512;  // longest sequence in tokens, specials included
  int64_t segment_types = 2;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double init_stddev = 0.02;
  double layer_norm_epsilon = 1e-12;
  std::string gelu = "tanh";  // tanh: the benchmark's and Google's; erf: most of Hugging Face's
  bool padded_vocab_in_softmax = false;  // the published codes let the padding columns take part
};

struct DataConfig {
  std::string train = "";  // folder of shards
  std::string eval = "";   // folder of shards, or one shard
  std::string vocab = "";  // vocab.txt; copied into checkpoints
  int64_t max_seq_tokens = 512;
  int64_t max_masked_per_seq = 76;
  std::string order = "windowed";  // windowed | published
  int64_t window_shards = 4;
  std::string exchange_padding = "lengths";  // off | allgather | lengths
  int64_t prefetch_steps = 2;
  bool verify_manifest = true;         // compare the shards with manifest.json
  bool synthetic = false;              // made-up batches instead of shards
  std::string synthetic_lengths = "";  // file of their histogram; "" = all equally often
};

struct TrainConfig {
  int64_t seed = 1;
  int64_t global_batch_seqs = 448;
  int64_t accumulation_steps = 1;    // micro-batches per rank and step
  int64_t max_steps = 6700;          // 0 = evaluate and save only
  int64_t max_samples = 0;           // 0 = no limit
  double time_limit_minutes = 0;     // 0 = none; at the limit: save, exit 75
  double target_accuracy = 0.720;    // 0 = train to the end
  double target_times_constant = 0;  // the target is also at least this many times the score of
                                     // the best constant answer
  std::string loss_mean = "global";  // global: over all masked tokens of the step; local: mean of
                                     // per-rank means, as published
  double nsp_weight = 1.0;           // of the next-sentence loss in the sum of both losses
  bool overfit_one_batch = false;    // a debugging aid: the first batch in every step
  int64_t init_warmup_steps = 0;     // on made-up batches, before the clock of the run starts
  int64_t log_every_steps = 10;
  int64_t stop_after_skips = 20;              // updates skipped in a row that end the run
  int64_t check_replicas_every_steps = 1000;  // of what several ranks hold; 0 = never
  double hang_timeout_minutes = 30;           // no rank makes progress: code 124; 0 = never
  std::string backend = "auto";               // auto | cpu | cuda
  std::string precision = "auto";  // of weights, activations and gradients: auto | fp32 | bf16 |
                                   // fp16 | fp8; auto = bf16 where the device has it; fp8 = auto
                                   // with encoder GEMMs of fp8
  int64_t threads_per_rank = 0;    // 0 = cores of the node / ranks on it
};

struct OptimizerConfig {
  double base_learning_rate = 4.25e-4;
  int64_t warmup_steps = 0;
  int64_t start_warmup_step = 0;
  int64_t schedule_steps = 0;  // 0 = train.max_steps
  double decay_degree = 1.0;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;
  double max_gradient_norm = 1.0;        // 0 = no clipping
  std::string clip = "after";            // after | before the reduction over ranks
  std::string gradient_spike = "warn";   // warn | skip its update | rewind
  std::string decay_rule = "reference";  // reference | nvidia_fmha | nvidia_te | baidu
  bool trust_ratio = true;               // false = AdamW
  std::string loss_scale = "off";        // off | dynamic
  double initial_loss_scale = 1048576;
  int64_t loss_scale_growth_interval_steps = 2000;
  double bucket_mib = 100;  // of gradients or weights exchanged in one call
  std::string shard_group =
      "auto";  // of ranks that divide the optimizer's state: auto | node | world
};

struct EvalConfig {
  int64_t every_samples = 0;  // 0 = the benchmark's rule from the global batch
  int64_t start_samples = 0;  // 0 = the interval
  int64_t batch_seqs = 16;    // per rank
  int64_t max_samples = 0;    // 0 = the whole set
};

struct CheckpointConfig {
  std::string resume = "auto";  // auto: newest complete checkpoint of the run folder; never; PATH
  std::string init = "";        // weights to start from: folder, file or TensorFlow prefix
  std::string init_missing_heads = "refuse";  // refuse | fresh: what weights lack is drawn
  std::string init_differences = "refuse";    // refuse | allow: another GELU, epsilon, heads
  int64_t every_steps = 0;                    // 0 = only at the end and on signals
  int64_t keep = 2;                           // newest complete checkpoints kept
  int64_t keep_every_steps = 0;               // those at its multiples are never removed; 0 = none
  bool keep_best = false;                     // save after the best evaluation, and keep that
  bool at_end = true;
};

struct LogConfig {
  std::string run_dir = "";  // "" = runs/<run_name>, in a Slurm job runs/<run_name>-<job id>
  std::string run_name = "bert";
  bool tensorboard = true;
  std::string profile_steps = "";  // "A:B": steps that a profiler of the GPU records; "" = none
};

struct CudaConfig {
  std::string kernels = "auto";               // auto: sm_90a's on an H100 or H200 | portable
  std::string attention = "auto";             // auto: measured best | grouped | persistent | split
  std::string gelu_gemms = "auto";            // auto: the measured best | own | library
  std::string embedding_gradient = "sorted";  // sorted: f32, repeatable; atomic: pairs of atomics
  std::string gemm_plans = "";                // file of tuned GEMMs; "" = none
  bool tune_gemms = false;                    // tune what the file does not have, at first use
  int64_t gemm_sm_count = 0;                  // that GEMMs plan for; 0 = all
  std::string graphs = "auto";                // auto: passes are recorded where possible | off
  bool fp8_fast_wgrad = true;                 // coarser sums of fp8 weight gradients
  std::string exchange = "auto";              // of gradients and weights: auto | nccl | copies
  int64_t nccl_max_ctas = 0;                  // that one collective may occupy; 0 = NCCL's choice
};

struct MlperfConfig {
  std::string submission_org = "bertha";
  std::string submission_platform = "reference";
  std::string division = "closed";  // closed | open
  std::string status = "research";  // cloud | onprem | preview | research
  bool cache_cleared = false;       // by whoever starts the run, which needs root
};

struct Config {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  EvalConfig eval;
  CheckpointConfig checkpoint;
  LogConfig log;
  CudaConfig cuda;
  MlperfConfig mlperf;
};

}  // namespace bertha

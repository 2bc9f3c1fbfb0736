#pragma once

#include <cstdint>
#include <string>

#include "harness/config/choices.h"

namespace bertha {

// All settings of a run, as plain structs with units in names and defaults in place. The YAML key
// of a field is its path, e.g. train.global_batch_seqs; harness/config/keys.cpp has a row per key.

struct ModelConfig {
  std::string name = "bert-large";
  int64_t layers = 24;
  int64_t hidden = 1024;
  int64_t heads = 16;
  int64_t feed_forward = 4096;
  int64_t vocab_size = 30522;   // padded inside to a multiple of 8
  int64_t max_positions = 512;  // longest sequence in tokens, [CLS] and [SEP] included
  int64_t segment_types = 2;
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  double init_stddev = 0.02;
  double layer_norm_epsilon = 1e-12;
  GeluForm gelu = GeluForm::kTanh;       // tanh: the benchmark's; erf: most Hugging Face models'
  bool padded_vocab_in_softmax = false;  // the published codes include the padding columns
};

struct DataConfig {
  std::string train = "";  // folder of shards
  std::string eval = "";   // folder of shards, or one shard
  std::string vocab = "";  // vocab.txt; copied into checkpoints
  int64_t max_seq_tokens = 512;
  int64_t max_masked_per_seq = 76;  // per sequence in the shards
  Masking masking = Masking::kStored;
  double masked_fraction = 0.15;  // with dynamic masks
  bool whole_words = false;       // with dynamic masks
  SampleOrder order = SampleOrder::kWindowed;
  int64_t window_shards = 4;
  ExchangePadding exchange_padding = ExchangePadding::kLengths;
  int64_t prefetch_steps = 2;
  bool verify_manifest = true;         // compare the shards with manifest.json
  bool synthetic = false;              // random batches instead of shards
  std::string synthetic_lengths = "";  // file with a length histogram; "" = all equally often
};

struct TrainConfig {
  int64_t seed = 1;
  int64_t global_batch_seqs = 448;
  int64_t accumulation_steps = 1;    // micro-batches per rank and step
  int64_t max_steps = 6700;          // 0 = evaluate and save only
  int64_t max_samples = 0;           // 0 = no limit
  double max_epochs = 0;             // 0 = no limit
  double time_limit_minutes = 0;     // 0 = none; at the limit: save, exit 75
  double target_accuracy = 0.720;    // 0 = train to the end
  double target_times_constant = 0;  // the target is also at least this many times the score of
                                     // the best constant answer
  LossMeanRule loss_mean = LossMeanRule::kGlobal;
  double nsp_weight = 1.0;  // weight of the next-sentence loss in the sum of both losses
  LastLayer last_layer = LastLayer::kNeededRows;
  bool overfit_one_batch = false;  // a debugging aid: the first batch in every step
  int64_t init_warmup_steps = 0;   // on synthetic batches, before the clock of the run starts
  int64_t log_every_steps = 10;
  int64_t stop_after_skips = 20;              // consecutive skipped updates that end the run
  int64_t check_replicas_every_steps = 1000;  // checks of replicated tensors; 0 = never
  double hang_timeout_minutes = 30;           // without progress on any rank: code 124; 0 = never
  ComputeBackend backend = ComputeBackend::kAuto;
  Precision precision = Precision::kAuto;  // weights, activations, gradients: auto = bf16
                                           // if the device has it; fp8 = auto with fp8 GEMMs
  int64_t threads_per_rank = 0;            // 0 = cores of the node / its ranks
};

inline constexpr double kAdamwLearningRate = 1e-4;

struct OptimizerConfig {
  OptimizerName name = OptimizerName::kLamb;
  double base_learning_rate = 4.25e-4;  // with adamw kAdamwLearningRate
  int64_t warmup_steps = 0;
  int64_t start_warmup_step = 0;
  int64_t schedule_steps = 0;  // 0 = train.max_steps
  Schedule schedule = Schedule::kPolynomial;
  double decay_degree = 1.0;    // power of the polynomial
  double final_fraction = 0.0;  // final rate / base rate
  int64_t decay_steps = 0;      // length of the decay of wsd
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;
  double max_gradient_norm = 1.0;  // 0 = no clipping
  ClipTime clip = ClipTime::kAfter;
  SpikeRule gradient_spike = SpikeRule::kWarn;
  DecayRule decay_rule = DecayRule::kReference;
  LossScaling loss_scale = LossScaling::kOff;
  double initial_loss_scale = 1048576;
  int64_t loss_scale_growth_interval_steps = 2000;
  double bucket_mib = 100;                     // gradients or weights sent in one call
  ShardGroup shard_group = ShardGroup::kAuto;  // ranks that divide the optimizer's state
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
  MissingHeads init_missing_heads = MissingHeads::kFresh;
  StatedDifferences init_differences = StatedDifferences::kRefuse;
  int64_t every_steps = 0;       // 0 = only at the end and on signals
  int64_t keep = 2;              // newest complete checkpoints kept
  int64_t keep_every_steps = 0;  // multiples of this step are never removed; 0 = none
  bool keep_best = false;        // save after the best evaluation and keep that checkpoint
  bool at_end = true;
};

struct LogConfig {
  std::string run_dir = "";  // "" = runs/<run_name>, in a Slurm job runs/<run_name>-<job id>
  std::string run_name = "bert";
  bool tensorboard = true;
  std::string profile_steps = "";  // "A:B": steps that a GPU profiler records; "" = none
};

struct CudaConfig {
  CudaKernels kernels = CudaKernels::kAuto;
  CudaOptions::AttentionVariant attention = CudaOptions::AttentionVariant::kAuto;
  CudaOptions::GeluGemms gelu_gemms = CudaOptions::GeluGemms::kAuto;
  CudaOptions::EmbeddingGradient embedding_gradient = CudaOptions::EmbeddingGradient::kSorted;
  std::string gemm_plans = "";  // file of tuned GEMMs; "" = none
  bool tune_gemms = false;      // tune GEMMs that the file lacks, at first use
  int64_t gemm_sm_count = 0;    // SMs that GEMMs plan for; 0 = all
  CudaGraphs graphs = CudaGraphs::kAuto;
  bool fp8_fast_wgrad = true;  // coarser sums of fp8 weight gradients
  GradientTransport exchange = GradientTransport::kAuto;
  int64_t nccl_max_ctas = 0;  // SMs that one collective may occupy; 0 = NCCL's choice
};

struct MlperfConfig {
  std::string submission_org = "bertha";
  std::string submission_platform = "reference";
  Division division = Division::kOpen;
  SubmissionStatus status = SubmissionStatus::kResearch;
  bool cache_cleared = false;  // set by the launcher, which needs root
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

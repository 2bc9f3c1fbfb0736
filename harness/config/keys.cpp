#include "harness/config/keys.h"

#include <algorithm>
#include <tuple>

namespace bertha {
namespace {

constexpr double kMaxCount = 1e15;  // exact in a double, beyond any run

template <class Section, class Value>
Section section_of(Value Section::*field);  // for its type alone

/// The field of a Config that a pointer such as &TrainConfig::seed names.
template <auto Field>
FieldRef at(Config& config) {
  auto& [model, data, train, optimizer, eval, checkpoint, log, cuda, mlperf] = config;
  const auto sections =
      std::tie(model, data, train, optimizer, eval, checkpoint, log, cuda, mlperf);
  return &(std::get<decltype(section_of(Field))&>(sections).*Field);
}

using M = ModelConfig;
using D = DataConfig;
using T = TrainConfig;
using O = OptimizerConfig;
using E = EvalConfig;
using C = CheckpointConfig;
using L = LogConfig;
using U = CudaConfig;
using P = MlperfConfig;

constexpr Range kFromZero{0, kMaxCount};
constexpr Range kFromOne{1, kMaxCount};
constexpr Range kFraction{.low = 0, .high = 1, .high_open = true};
constexpr Range kDropout{.low = 0, .high = 0.999};  // below 1 as f32, too

constexpr bool kNotLearned = false;  // for Key::is_learned

// One row per line, wider than the page: path, field, unit, range, what it does.
// clang-format off
std::vector<Key> make_keys() {
  return {
      {"model.name", at<&M::name>, Unit::kNone, {},
       "Name of the shape, for logs and config.json."},
      {"model.layers", at<&M::layers>, Unit::kNone, {1, 256},
       "Layers of the encoder."},
      {"model.hidden", at<&M::hidden>, Unit::kNone, {8, 65536},
       "Width of the encoder; a multiple of 8 and of model.heads."},
      {"model.heads", at<&M::heads>, Unit::kNone, {1, 1024},
       "Attention heads per layer."},
      {"model.feed_forward", at<&M::feed_forward>, Unit::kNone, {8, 262144},
       "Width between the two feed-forward GEMMs; a multiple of 8."},
      {"model.vocab_size", at<&M::vocab_size>, Unit::kTokens, {8, 1'000'000},
       "Entries of the vocabulary or more; padded inside to a multiple of 8."},
      {"model.max_positions", at<&M::max_positions>, Unit::kTokens, {8, 1 << 20},
       "Rows of the position table: the longest possible sequence."},
      {"model.segment_types", at<&M::segment_types>, Unit::kNone, {2, 127},
       "Segment ids: 0 for the first sentence, 1 for the second."},
      {"model.hidden_dropout", at<&M::hidden_dropout>, Unit::kNone, kDropout,
       "Dropout after the embeddings, after attention and after the feed-forward part."},
      {"model.attention_dropout", at<&M::attention_dropout>, Unit::kNone, kDropout,
       "Dropout of the attention probabilities."},
      {"model.init_stddev", at<&M::init_stddev>, Unit::kNone, {.low = 0, .high = 1, .low_open = true},
       "Standard deviation of the truncated normal distribution of initial weights."},
      {"model.layer_norm_epsilon", at<&M::layer_norm_epsilon>, Unit::kNone, {.low = 1e-30, .high = 0.1},
       "Added to the variance in every LayerNorm."},
      {"model.gelu", at<&M::gelu>, Unit::kNone, {},
       "Form of the GELU: the benchmark's tanh approximation, or the exact one, with which most Hugging Face models were trained."},
      {"model.padded_vocab_in_softmax", at<&M::padded_vocab_in_softmax>, Unit::kNone, {},
       "Include the padding columns of the vocabulary in the softmax, as the published codes do."},

      {"data.train", at<&D::train>, Unit::kNone, {},
       "Folder of training shards.", kNotLearned},
      {"data.eval", at<&D::eval>, Unit::kNone, {},
       "Folder of evaluation shards, or one shard.", kNotLearned},
      {"data.vocab", at<&D::vocab>, Unit::kNone, {},
       "Vocabulary that the shards were made with: a vocab.txt, a tokenizer.json or a model folder; checkpoints copy it and its tokenizer settings.", kNotLearned},
      {"data.max_seq_tokens", at<&D::max_seq_tokens>, Unit::kTokens, {8, 32767},
       "Longest sequence in the shards, [CLS] and [SEP] included; at most model.max_positions."},
      {"data.max_masked_per_seq", at<&D::max_masked_per_seq>, Unit::kTokens, {1, 32767},
       "Maximum number of masked tokens per sequence in the shards."},
      {"data.masking", at<&D::masking>, Unit::kNone, {},
       "Masks of training samples: those of the shards, or drawn anew in each epoch from train.seed, the same for any number of ranks. dynamic needs the vocabulary, data.vocab, unless manifest.json states its special ids; shards of one pass over the text are then enough. Evaluation data keep the masks of their shards. dynamic not in the closed division."},
      {"data.masked_fraction", at<&D::masked_fraction>, Unit::kNone, {.low = 0, .high = 1, .low_open = true},
       "Share of the tokens of a sequence that dynamic masks choose: 80 % of them become [MASK], 10 % a random word, 10 % stay."},
      {"data.whole_words", at<&D::whole_words>, Unit::kNone, {},
       "Dynamic masks choose whole words: all pieces of a word, by the ## of data.vocab, or none."},
      {"data.order", at<&D::order>, Unit::kNone, {},
       "Order of samples: shuffled inside windows of shards, or as in the published codes."},
      {"data.window_shards", at<&D::window_shards>, Unit::kNone, {1, 65536},
       "Shards in memory at a time, among which samples are shuffled."},
      {"data.exchange_padding", at<&D::exchange_padding>, Unit::kNone, {},
       "How ranks balance their token counts; allgather and lengths give the same batches, lengths sends less."},
      {"data.prefetch_steps", at<&D::prefetch_steps>, Unit::kSteps, {1, 1024},
       "Finished batches queued ahead of the step.", kNotLearned},
      {"data.verify_manifest", at<&D::verify_manifest>, Unit::kNone, {},
       "Compare the shards with manifest.json: names, sizes and counts before training, hashes when read.", kNotLearned},
      {"data.synthetic", at<&D::synthetic>, Unit::kNone, {},
       "Train and evaluate on random words that need no file: for speed, memory and trials, as losses and accuracies mean nothing. data.train and data.eval must be empty; logs say division open, and there is no target."},
      {"data.synthetic_lengths", at<&D::synthetic_lengths>, Unit::kNone, {},
       "File of the histogram of their lengths: counts of lengths 1, 2, ..., one per line, or lines of a length and its count; empty = all lengths equally often."},

      {"train.seed", at<&T::seed>, Unit::kNone, kFromZero,
       "Seed of data order, dynamic masks, dropout and initial weights."},
      {"train.global_batch_seqs", at<&T::global_batch_seqs>, Unit::kSeqs, {1, 1 << 24},
       "Sequences per step over all ranks; a multiple of ranks x train.accumulation_steps."},
      {"train.accumulation_steps", at<&T::accumulation_steps>, Unit::kNone, {1, 65536},
       "Micro-batches per rank and step, whose gradients are added.", kNotLearned},
      {"train.max_steps", at<&T::max_steps>, Unit::kSteps, kFromZero,
       "Last step of the run; 0 = load the weights, evaluate and save."},
      {"train.max_samples", at<&T::max_samples>, Unit::kSeqs, kFromZero,
       "Stop after this many sequences; 0 = no limit.", kNotLearned},
      {"train.max_epochs", at<&T::max_epochs>, Unit::kNone, {0, 1e6},
       "Passes over data.train, from which train.max_steps follows unless it is set; 0 = train.max_steps alone.", kNotLearned},
      {"train.time_limit_minutes", at<&T::time_limit_minutes>, Unit::kMinutes, {0, 1e7},
       "Save and exit with code 75 after this time; 0 = no limit.", kNotLearned},
      {"train.target_accuracy", at<&T::target_accuracy>, Unit::kNone, kFraction,
       "Masked-token accuracy on the evaluation set that ends the run; 0 = train to the last step.", kNotLearned},
      {"train.target_times_constant", at<&T::target_times_constant>, Unit::kNone, {0, 100},
       "The target is also at least this multiple of the accuracy of the best constant answer.", kNotLearned},
      {"train.loss_mean", at<&T::loss_mean>, Unit::kNone, {},
       "Mean over all masked tokens of the step, or mean of the ranks' means, as published."},
      {"train.nsp_weight", at<&T::nsp_weight>, Unit::kNone, {0, 100},
       "Weight of the next-sentence loss relative to the masked-token loss: 1 as published, 0 = masked tokens only."},
      {"train.last_layer", at<&T::last_layer>, Unit::kNone, {},
       "Rows that the encoder's last layer computes after its attention: needed_rows = masked and first tokens, which the losses read; losses and gradients are the same up to rounding. A checkpoint goes on as its run began, one of 1.0.0 with all_rows.", kNotLearned},
      {"train.overfit_one_batch", at<&T::overfit_one_batch>, Unit::kNone, {},
       "Train on the run's first batch in every step: without dropout the loss of a sound model goes to zero. Logs say division open, and there is no target."},
      {"train.init_warmup_steps", at<&T::init_warmup_steps>, Unit::kSteps, {0, 10000},
       "Steps on synthetic batches during initialization, which leave the model unchanged: the first timed step is then as fast as the others.", kNotLearned},
      {"train.log_every_steps", at<&T::log_every_steps>, Unit::kSteps, kFromOne,
       "Steps between log lines.", kNotLearned},
      {"train.stop_after_skips", at<&T::stop_after_skips>, Unit::kSteps, kFromOne,
       "Skipped updates in a row (gradients not finite, or spikes where they are skipped) that end the run with code 7.", kNotLearned},
      {"train.check_replicas_every_steps", at<&T::check_replicas_every_steps>, Unit::kSteps, kFromZero,
       "Steps after which ranks compare checksums of what several of them hold; a difference ends the run with code 7 and names tensor, rank and host. 0 = never.", kNotLearned},
      {"train.hang_timeout_minutes", at<&T::hang_timeout_minutes>, Unit::kMinutes, {0, 1e7},
       "Ends the run with code 124 when no rank makes progress for this time; 0 = never.", kNotLearned},
      {"train.backend", at<&T::backend>, Unit::kNone, {},
       "Device that computes; auto = cuda when built in and a GPU is present.", kNotLearned},
      {"train.precision", at<&T::precision>, Unit::kNone, {},
       "Of weights, activations and gradients; the optimizer's state is fp32. auto = bf16 on a GPU, fp32 on the CPU. fp8 = auto, with encoder GEMMs of fp8."},
      {"train.threads_per_rank", at<&T::threads_per_rank>, Unit::kNone, {0, 4096},
       "CPU threads of a rank; 0 = cores of the node / ranks on it.", kNotLearned},

      {"optimizer.name", at<&O::name>, Unit::kNone, {},
       "lamb scales the step of each tensor by its norm; adamw does not, and its learning rate is 1e-4 unless it is set."},
      {"optimizer.base_learning_rate", at<&O::base_learning_rate>, Unit::kNone, {.low = 0, .high = 10, .low_open = true},
       "Learning rate at the end of warm-up."},
      {"optimizer.warmup_steps", at<&O::warmup_steps>, Unit::kSteps, kFromZero,
       "Steps of linear warm-up, counted from optimizer.start_warmup_step."},
      {"optimizer.start_warmup_step", at<&O::start_warmup_step>, Unit::kSteps, {-kMaxCount, kMaxCount},
       "Step at which warm-up starts; negative = it began before the first step."},
      {"optimizer.schedule_steps", at<&O::schedule_steps>, Unit::kSteps, kFromZero,
       "Step at which the decay ends; 0 = train.max_steps."},
      {"optimizer.schedule", at<&O::schedule>, Unit::kNone, {},
       "Learning rate after the warm-up. polynomial = (1 - step / schedule_steps)^decay_degree, as published; linear and cosine = from the end of the warm-up on, cosine half a period; constant; wsd = constant, then linear over the last optimizer.decay_steps."},
      {"optimizer.decay_degree", at<&O::decay_degree>, Unit::kNone, {.low = 0, .high = 10, .low_open = true},
       "Power of the polynomial decay."},
      {"optimizer.final_fraction", at<&O::final_fraction>, Unit::kNone, {0, 1},
       "Learning rate at the end of the schedule, as a fraction of optimizer.base_learning_rate."},
      {"optimizer.decay_steps", at<&O::decay_steps>, Unit::kSteps, kFromZero,
       "Length of the decay of optimizer.schedule: wsd."},
      {"optimizer.beta_1", at<&O::beta_1>, Unit::kNone, kFraction,
       "Decay of the first moment."},
      {"optimizer.beta_2", at<&O::beta_2>, Unit::kNone, kFraction,
       "Decay of the second moment."},
      {"optimizer.epsilon", at<&O::epsilon>, Unit::kNone, {.low = 1e-30, .high = 1},
       "Added to the root of the second moment."},
      {"optimizer.weight_decay", at<&O::weight_decay>, Unit::kNone, {0, 10},
       "Decoupled decay of the tensors that optimizer.decay_rule names."},
      {"optimizer.max_gradient_norm", at<&O::max_gradient_norm>, Unit::kNone, {0, 1e9},
       "Global norm to which gradients are clipped; 0 = no clipping."},
      {"optimizer.clip", at<&O::clip>, Unit::kNone, {},
       "Clip after or before the reduction over ranks."},
      {"optimizer.gradient_spike", at<&O::gradient_spike>, Unit::kNone, {},
       "What to do in a step whose gradient norm is more than 5 times the usual one, the mean of about 32 steps: warn in the log; also skip the update; or rewind, which goes back to the last checkpoint before it and leaves out the batches from there to that step, at most three times before a new checkpoint. Jumps of the loss are told of too, and rewind goes back from them. skip and rewind not in the closed division, and not with optimizer.clip before."},
      {"optimizer.decay_rule", at<&O::decay_rule>, Unit::kNone, {},
       "Which parameters get weight decay and the trust ratio, as in a published code: reference = all but LayerNorm and biases; nvidia_fmha = also the biases of query, key and value; nvidia_te = also the gamma of the attention LayerNorm; baidu = also those biases and both gammas of every layer. Query, key and value are three parameters, with three ratios, in reference and nvidia_fmha, and one in nvidia_te and baidu."},
      {"optimizer.loss_scale", at<&O::loss_scale>, Unit::kNone, {},
       "Scale the loss for 16-bit gradients; dynamic halves on overflow and doubles after an interval without one."},
      {"optimizer.initial_loss_scale", at<&O::initial_loss_scale>, Unit::kNone, {1, 1e9},
       "First value of the dynamic loss scale."},
      {"optimizer.loss_scale_growth_interval_steps", at<&O::loss_scale_growth_interval_steps>, Unit::kSteps, kFromOne,
       "Steps without overflow after which the loss scale doubles."},
      {"optimizer.bucket_mib", at<&O::bucket_mib>, Unit::kNone, {.low = 0, .high = 1e6, .low_open = true},
       "Bucket size in MiB: gradients are reduced over ranks as soon as backward has finished a bucket, and weights are gathered by the bucket.", kNotLearned},
      {"optimizer.shard_group", at<&O::shard_group>, Unit::kNone, {},
       "Ranks that divide the optimizer's state and work: those of each node, or all. auto = node where there are several nodes of several ranks, equally many on each.", kNotLearned},

      {"eval.every_samples", at<&E::every_samples>, Unit::kSeqs, kFromZero,
       "Training sequences between evaluations; 0 = the benchmark's rule from train.global_batch_seqs.", kNotLearned},
      {"eval.start_samples", at<&E::start_samples>, Unit::kSeqs, kFromZero,
       "Training sequences before the first evaluation; 0 = the interval.", kNotLearned},
      {"eval.batch_seqs", at<&E::batch_seqs>, Unit::kSeqs, {1, 65536},
       "Sequences per rank and evaluation batch.", kNotLearned},
      {"eval.max_samples", at<&E::max_samples>, Unit::kSeqs, kFromZero,
       "Sequences of the evaluation set to use; 0 = all.", kNotLearned},

      {"checkpoint.resume", at<&C::resume>, Unit::kNone, {},
       "auto = newest complete checkpoint of the run folder, never = start over, or the path of a checkpoint to continue: once that continuation has saved newer ones in the run folder, it resumes from those.", kNotLearned},
      {"checkpoint.init", at<&C::init>, Unit::kNone, {},
       "Weights to start from: a checkpoint or run folder, a Hugging Face folder or .safetensors file, or the prefix of a TensorFlow checkpoint; empty = random weights. The config.json there sets the keys under model that nothing else sets, and its vocabulary data.vocab."},
      {"checkpoint.init_missing_heads", at<&C::init_missing_heads>, Unit::kNone, {},
       "When checkpoint.init lacks the pooler or a head, such as a bare encoder: initialize that part with random weights and say so, or stop."},
      {"checkpoint.init_differences", at<&C::init_differences>, Unit::kNone, {},
       "When a config.json next to checkpoint.init states another GELU, epsilon or number of heads than keys under model that are set: stop, or use the keys."},
      {"checkpoint.every_steps", at<&C::every_steps>, Unit::kSteps, kFromZero,
       "Steps between checkpoints; 0 = only at the end and on signals.", kNotLearned},
      {"checkpoint.keep", at<&C::keep>, Unit::kNone, {1, 1e6},
       "Number of newest complete checkpoints to keep.", kNotLearned},
      {"checkpoint.keep_every_steps", at<&C::keep_every_steps>, Unit::kSteps, kFromZero,
       "Also keep, for good, the checkpoints at multiples of this; a multiple of checkpoint.every_steps; 0 = none.", kNotLearned},
      {"checkpoint.keep_best", at<&C::keep_best>, Unit::kNone, {},
       "Save after each evaluation that is better than all before, and keep the best checkpoint beside the newest; ckpt/best in the run folder points to it.", kNotLearned},
      {"checkpoint.at_end", at<&C::at_end>, Unit::kNone, {},
       "Save when the run ends.", kNotLearned},

      {"log.run_dir", at<&L::run_dir>, Unit::kNone, {},
       "Folder of the run; empty = runs/<log.run_name>, in a Slurm job runs/<log.run_name>-<job id>.", kNotLearned},
      {"log.run_name", at<&L::run_name>, Unit::kNone, {},
       "Name of the run, for its folder and logs.", kNotLearned},
      {"log.tensorboard", at<&L::tensorboard>, Unit::kNone, {},
       "Write TensorBoard event files.", kNotLearned},
      {"log.profile_steps", at<&L::profile_steps>, Unit::kNone, {},
       "Steps A:B, counted from 1, that an attached GPU profiler records; empty = none.", kNotLearned},

      {"cuda.kernels", at<&U::kernels>, Unit::kNone, {},
       "Kernels of the GPU: auto = those of sm_90a on H100 and H200, portable ones on other GPUs from compute capability 8.0 on; portable = these everywhere, without persistent attention, Bertha's own GELU GEMMs, bulk copies, clusters, CUDA graphs and fp8.", kNotLearned},
      {"cuda.attention", at<&U::attention>, Unit::kNone, {},
       "Attention kernels: grouped = a launch per length bucket, on side streams; persistent = one launch (bf16 or fp16, head sizes up to 64, model.max_positions up to 512, with attention dropout in multiples of 128; refused elsewhere); split = the same with parts of sequences, for few tokens; auto = the faster supported one, as measured.", kNotLearned},
      {"cuda.gelu_gemms", at<&U::gelu_gemms>, Unit::kNone, {},
       "Kernels of GEMMs with a GELU: own = Bertha's (bf16 or fp16, model.hidden and model.feed_forward in multiples of 256; refused elsewhere); library = cuBLASLt's; auto = own where supported, from the number of rows at which they were measured to be faster.", kNotLearned},
      {"cuda.embedding_gradient", at<&U::embedding_gradient>, Unit::kNone, {},
       "Gradient of the word table: f32 sums over tokens sorted by word, reproducible bit for bit, or atomic adds.", kNotLearned},
      {"cuda.gemm_plans", at<&U::gemm_plans>, Unit::kNone, {},
       "File of tuned GEMMs, of this GPU model and library version; empty = the library's first choice.", kNotLearned},
      {"cuda.tune_gemms", at<&U::tune_gemms>, Unit::kNone, {},
       "Tune each GEMM that cuda.gemm_plans lacks at its first use, and add it to the file: about three seconds each.", kNotLearned},
      {"cuda.gemm_sm_count", at<&U::gemm_sm_count>, Unit::kNone, {0, 1024},
       "SMs that GEMMs are planned for when communication occupies the others; 0 = all.", kNotLearned},
      {"cuda.graphs", at<&U::graphs>, Unit::kNone, {},
       "auto: forward and backward of a size of batch that has occurred before are launched as CUDA graphs, with the same results; not with attention of one launch per length bucket (cuda.attention: grouped, fp32, model.max_positions above 512), log.profile_steps or times by operation. off: every kernel is launched by the host.", kNotLearned},
      {"cuda.fp8_fast_wgrad", at<&U::fp8_fast_wgrad>, Unit::kNone, {},
       "The sums of fp8 weight gradients keep 14 bits below the largest product, of which curves showed nothing; false: sums in f32, BERT-large steps 2 % slower.", kNotLearned},
      {"cuda.exchange", at<&U::exchange>, Unit::kNone, {},
       "How gradients and weights are sent between GPUs: by NCCL; by GPU-to-GPU copies inside each machine, which leave all SMs to the model (at most 8 ranks there, with peer access; refused elsewhere); auto = copies where possible.", kNotLearned},
      {"cuda.nccl_max_ctas", at<&U::nccl_max_ctas>, Unit::kNone, {0, 64},
       "SMs that a collective may occupy; 0 = NCCL's choice.", kNotLearned},

      {"mlperf.submission_org", at<&P::submission_org>, Unit::kNone, {},
       "Organization in the MLLOG records.", kNotLearned},
      {"mlperf.submission_platform", at<&P::submission_platform>, Unit::kNone, {},
       "System in the MLLOG records.", kNotLearned},
      {"mlperf.division", at<&P::division>, Unit::kNone, {},
       "Division in the MLLOG records; closed refuses settings that its rules do not allow.", kNotLearned},
      {"mlperf.status", at<&P::status>, Unit::kNone, {},
       "Submission status in the MLLOG records.", kNotLearned},
      {"mlperf.cache_cleared", at<&P::cache_cleared>, Unit::kNone, {},
       "The page caches of all nodes were emptied before this start; cache_clear in the MLLOG records.", kNotLearned},
  };
}
// clang-format on

}  // namespace

const std::vector<Key>& config_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

std::string_view retired_key(std::string_view path) {
  if (path == kTrustRatio) return "optimizer.name serves instead: lamb for true, adamw for false";
  return path == "log.plots" ? "bertha-tools plot draws the curves of a run" : "";
}

const Key* find_key(std::string_view path) {
  const auto& keys = config_keys();
  const auto found = std::ranges::find_if(keys, [&](const Key& key) { return key.path == path; });
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace bertha

#include "harness/config/keys.h"

#include <algorithm>
#include <tuple>

namespace bertha {
namespace {

constexpr double kMaxCount = 1e15;  // exact in a double and larger than any run needs

template <class Section, class Value>
Section section_of(Value Section::*field);  // only its type is used

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

// One row per line, whatever its length: path, field, unit, range, meaning.
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
       "Entries of the vocabulary, or more; padded internally to a multiple of 8."},
      {"model.max_positions", at<&M::max_positions>, Unit::kTokens, {8, 1 << 20},
       "Rows of the position table, which limit the length of a sequence."},
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
       "Form of the GELU: the benchmark's tanh approximation, or the exact form, as in most Hugging Face models."},
      {"model.padded_vocab_in_softmax", at<&M::padded_vocab_in_softmax>, Unit::kNone, {},
       "Include the padding columns of the vocabulary in the softmax, as the published codes do."},

      {"data.train", at<&D::train>, Unit::kNone, {},
       "Folder of training shards.", kNotLearned},
      {"data.eval", at<&D::eval>, Unit::kNone, {},
       "Folder of evaluation shards, or one shard.", kNotLearned},
      {"data.vocab", at<&D::vocab>, Unit::kNone, {},
       "Vocabulary of the shards: a vocab.txt, a tokenizer.json or a model folder; checkpoints contain a copy of it and of its tokenizer settings.", kNotLearned},
      {"data.max_seq_tokens", at<&D::max_seq_tokens>, Unit::kTokens, {8, 32767},
       "Longest sequence in the shards, [CLS] and [SEP] included; at most model.max_positions."},
      {"data.max_masked_per_seq", at<&D::max_masked_per_seq>, Unit::kTokens, {1, 32767},
       "Maximum number of masked tokens per sequence in the shards."},
      {"data.masking", at<&D::masking>, Unit::kNone, {},
       "Masks of training samples: stored = those in the shards; dynamic = drawn anew in each epoch from train.seed, identically for any number of ranks. dynamic needs data.vocab, unless manifest.json states the special ids; shards of one pass over the text are then enough. Evaluation always uses the masks in the shards. The closed division does not allow dynamic."},
      {"data.masked_fraction", at<&D::masked_fraction>, Unit::kNone, {.low = 0, .high = 1, .low_open = true},
       "Share of the tokens of a sequence that dynamic masks select: 80 % of these become [MASK], 10 % a random word, 10 % are unchanged."},
      {"data.whole_words", at<&D::whole_words>, Unit::kNone, {},
       "Dynamic masks select whole words: all pieces of a word, by the ## of data.vocab, or none."},
      {"data.order", at<&D::order>, Unit::kNone, {},
       "Order of samples: shuffled inside windows of shards, or as in the published codes."},
      {"data.window_shards", at<&D::window_shards>, Unit::kNone, {1, 65536},
       "Number of shards in memory at a time; samples are shuffled among them."},
      {"data.exchange_padding", at<&D::exchange_padding>, Unit::kNone, {},
       "How ranks balance their token counts; allgather and lengths give the same batches, but lengths sends less."},
      {"data.prefetch_steps", at<&D::prefetch_steps>, Unit::kSteps, {1, 1024},
       "Number of finished batches queued ahead of the step.", kNotLearned},
      {"data.verify_manifest", at<&D::verify_manifest>, Unit::kNone, {},
       "Compare the shards with manifest.json: names, sizes and counts before training, hashes as shards are read.", kNotLearned},
      {"data.synthetic", at<&D::synthetic>, Unit::kNone, {},
       "Train and evaluate on random words, without any file: to measure speed and memory or to try settings; losses and accuracies mean nothing. data.train and data.eval must be empty; the log is marked \"open\" and no target is set."},
      {"data.synthetic_lengths", at<&D::synthetic_lengths>, Unit::kNone, {},
       "File with the histogram of synthetic sequence lengths: the counts of lengths 1, 2, ..., one per line, or lines with a length and its count; empty = all lengths equally often."},

      {"train.seed", at<&T::seed>, Unit::kNone, kFromZero,
       "Seed of data order, dynamic masks, dropout and initial weights."},
      {"train.global_batch_seqs", at<&T::global_batch_seqs>, Unit::kSeqs, {1, 1 << 24},
       "Sequences per step over all ranks; a multiple of ranks x train.accumulation_steps."},
      {"train.accumulation_steps", at<&T::accumulation_steps>, Unit::kNone, {1, 65536},
       "Micro-batches per rank and step; their gradients are added.", kNotLearned},
      {"train.max_steps", at<&T::max_steps>, Unit::kSteps, kFromZero,
       "Last step of the run; 0 = only load the weights, evaluate and save."},
      {"train.max_samples", at<&T::max_samples>, Unit::kSeqs, kFromZero,
       "Stop after this many sequences; 0 = no limit.", kNotLearned},
      {"train.max_epochs", at<&T::max_epochs>, Unit::kNone, {0, 1e6},
       "Passes over data.train; determines train.max_steps unless that is set. 0 = use train.max_steps.", kNotLearned},
      {"train.time_limit_minutes", at<&T::time_limit_minutes>, Unit::kMinutes, {0, 1e7},
       "Time after which the run saves and exits with code 75; 0 = no limit.", kNotLearned},
      {"train.target_accuracy", at<&T::target_accuracy>, Unit::kNone, kFraction,
       "Masked-token accuracy on the evaluation set at which the run ends; 0 = train to the last step.", kNotLearned},
      {"train.target_times_constant", at<&T::target_times_constant>, Unit::kNone, {0, 100},
       "Lower bound of the target, as a multiple of the accuracy of the best constant answer.", kNotLearned},
      {"train.loss_mean", at<&T::loss_mean>, Unit::kNone, {},
       "What a loss is averaged over: global = all masked tokens of the step; local = the mean of the ranks' means, as published."},
      {"train.nsp_weight", at<&T::nsp_weight>, Unit::kNone, {0, 100},
       "Weight of the next-sentence loss relative to the masked-token loss: 1 as published, 0 = masked tokens only."},
      {"train.last_layer", at<&T::last_layer>, Unit::kNone, {},
       "Rows that the encoder's last layer computes after its attention: needed_rows = only masked and first tokens, which the losses read; losses and gradients are the same up to rounding. A resumed run continues as it began; checkpoints of 1.0.0 continue with all_rows.", kNotLearned},
      {"train.overfit_one_batch", at<&T::overfit_one_batch>, Unit::kNone, {},
       "Train on the run's first batch in every step: without dropout, the loss of a correct model goes to zero. The log is marked \"open\" and no target is set."},
      {"train.init_warmup_steps", at<&T::init_warmup_steps>, Unit::kSteps, {0, 10000},
       "Steps on synthetic batches during initialization. They leave the model unchanged and make the first timed step as fast as the others.", kNotLearned},
      {"train.log_every_steps", at<&T::log_every_steps>, Unit::kSteps, kFromOne,
       "Steps between log lines.", kNotLearned},
      {"train.stop_after_skips", at<&T::stop_after_skips>, Unit::kSteps, kFromOne,
       "Number of consecutive skipped updates (gradients that are not finite, or skipped spikes) after which the run ends with code 7.", kNotLearned},
      {"train.check_replicas_every_steps", at<&T::check_replicas_every_steps>, Unit::kSteps, kFromZero,
       "Steps between comparisons of the checksums of replicated tensors; a difference ends the run with code 7, and the error names tensor, rank and host. 0 = never.", kNotLearned},
      {"train.hang_timeout_minutes", at<&T::hang_timeout_minutes>, Unit::kMinutes, {0, 1e7},
       "Time without progress on any rank after which the run ends with code 124; 0 = never.", kNotLearned},
      {"train.backend", at<&T::backend>, Unit::kNone, {},
       "Device to compute on; auto = cuda if it is built in and a GPU is present.", kNotLearned},
      {"train.precision", at<&T::precision>, Unit::kNone, {},
       "Type of weights, activations and gradients; the optimizer's state is fp32. auto = bf16 on a GPU, fp32 on the CPU. fp8 = auto, but with fp8 GEMMs in the encoder and the masked-token decoder."},
      {"train.threads_per_rank", at<&T::threads_per_rank>, Unit::kNone, {0, 4096},
       "CPU threads per rank; 0 = cores of the node / ranks on it.", kNotLearned},

      {"optimizer.name", at<&O::name>, Unit::kNone, {},
       "lamb scales the step of each tensor by its norm; adamw does not, and its learning rate is 1e-4 unless set."},
      {"optimizer.base_learning_rate", at<&O::base_learning_rate>, Unit::kNone, {.low = 0, .high = 10, .low_open = true},
       "Learning rate at the end of warm-up."},
      {"optimizer.warmup_steps", at<&O::warmup_steps>, Unit::kSteps, kFromZero,
       "Steps of linear warm-up, counted from optimizer.start_warmup_step."},
      {"optimizer.start_warmup_step", at<&O::start_warmup_step>, Unit::kSteps, {-kMaxCount, kMaxCount},
       "Step at which warm-up starts; negative = it began before the first step."},
      {"optimizer.schedule_steps", at<&O::schedule_steps>, Unit::kSteps, kFromZero,
       "Step at which the decay ends; 0 = train.max_steps."},
      {"optimizer.schedule", at<&O::schedule>, Unit::kNone, {},
       "Learning rate after the warm-up. polynomial = (1 - step / schedule_steps)^decay_degree, as published; linear = linear decay from the end of the warm-up; cosine = half a period of a cosine from the end of the warm-up; constant; wsd = constant, then linear decay over the last optimizer.decay_steps."},
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
       "Decoupled weight decay of the tensors that optimizer.decay_rule selects."},
      {"optimizer.max_gradient_norm", at<&O::max_gradient_norm>, Unit::kNone, {0, 1e9},
       "Maximum global norm, to which gradients are clipped; 0 = no clipping."},
      {"optimizer.clip", at<&O::clip>, Unit::kNone, {},
       "Clip after or before the reduction over ranks."},
      {"optimizer.gradient_spike", at<&O::gradient_spike>, Unit::kNone, {},
       "What to do in a step whose gradient norm exceeds 5 times the usual norm, the mean of about 32 steps: warn = warn in the log; skip = also skip the update; rewind = return to the last checkpoint before the step and leave out the batches from there to the step, at most three times without a new checkpoint. Jumps of the loss are reported too, and rewind also returns from them. skip and rewind are not allowed in the closed division or with optimizer.clip before."},
      {"optimizer.decay_rule", at<&O::decay_rule>, Unit::kNone, {},
       "Which parameters get weight decay and the trust ratio, as in a published code: reference = all except LayerNorm and biases; nvidia_fmha = also the biases of query, key and value; nvidia_te = also the gamma of the attention LayerNorm; baidu = also the biases of query, key and value and both gammas of every layer. Query, key and value are three parameters, with three trust ratios, in reference and nvidia_fmha, and one parameter in nvidia_te and baidu."},
      {"optimizer.loss_scale", at<&O::loss_scale>, Unit::kNone, {},
       "Scale the loss for 16-bit gradients; dynamic halves on overflow and doubles after an interval without one."},
      {"optimizer.initial_loss_scale", at<&O::initial_loss_scale>, Unit::kNone, {1, 1e9},
       "Initial value of the dynamic loss scale."},
      {"optimizer.loss_scale_growth_interval_steps", at<&O::loss_scale_growth_interval_steps>, Unit::kSteps, kFromOne,
       "Steps without overflow after which the loss scale doubles."},
      {"optimizer.bucket_mib", at<&O::bucket_mib>, Unit::kNone, {.low = 0, .high = 1e6, .low_open = true},
       "Bucket size in MiB: gradients are reduced over ranks as soon as backward has finished a bucket, and weights are gathered bucket by bucket.", kNotLearned},
      {"optimizer.shard_group", at<&O::shard_group>, Unit::kNone, {},
       "Ranks that divide the optimizer's state and work among themselves: those of each node, or all. auto = node if there are several nodes with several ranks each, the same number on every node.", kNotLearned},

      {"eval.every_samples", at<&E::every_samples>, Unit::kSeqs, kFromZero,
       "Training sequences between evaluations; 0 = the benchmark's rule from train.global_batch_seqs.", kNotLearned},
      {"eval.start_samples", at<&E::start_samples>, Unit::kSeqs, kFromZero,
       "Training sequences before the first evaluation; 0 = the interval.", kNotLearned},
      {"eval.batch_seqs", at<&E::batch_seqs>, Unit::kSeqs, {1, 65536},
       "Sequences per rank and evaluation batch.", kNotLearned},
      {"eval.max_samples", at<&E::max_samples>, Unit::kSeqs, kFromZero,
       "Sequences of the evaluation set to use; 0 = all.", kNotLearned},

      {"checkpoint.resume", at<&C::resume>, Unit::kNone, {},
       "auto = the newest complete checkpoint of the run folder; never = start over; or the path of a checkpoint to continue from. Once such a run has saved newer checkpoints in its run folder, it resumes from those.", kNotLearned},
      {"checkpoint.init", at<&C::init>, Unit::kNone, {},
       "Weights to start from: a checkpoint or run folder, a Hugging Face folder or .safetensors file, or the prefix of a TensorFlow checkpoint; empty = random weights. Its config.json sets the keys under model that nothing else sets, and its vocabulary sets data.vocab."},
      {"checkpoint.init_missing_heads", at<&C::init_missing_heads>, Unit::kNone, {},
       "If checkpoint.init lacks the pooler or a head, as a bare encoder does: fresh = initialize that part, with a warning; refuse = stop."},
      {"checkpoint.init_differences", at<&C::init_differences>, Unit::kNone, {},
       "If a config.json next to checkpoint.init states a GELU, epsilon or number of heads that differs from keys set under model: stop, or use the keys."},
      {"checkpoint.every_steps", at<&C::every_steps>, Unit::kSteps, kFromZero,
       "Steps between checkpoints; 0 = only at the end and on signals.", kNotLearned},
      {"checkpoint.keep", at<&C::keep>, Unit::kNone, {1, 1e6},
       "Number of newest complete checkpoints to keep.", kNotLearned},
      {"checkpoint.keep_every_steps", at<&C::keep_every_steps>, Unit::kSteps, kFromZero,
       "Keep checkpoints at multiples of this step permanently; a multiple of checkpoint.every_steps; 0 = none.", kNotLearned},
      {"checkpoint.keep_best", at<&C::keep_best>, Unit::kNone, {},
       "Save after each evaluation that is better than all before, and keep the best checkpoint in addition to the newest; ckpt/best in the run folder points to it.", kNotLearned},
      {"checkpoint.at_end", at<&C::at_end>, Unit::kNone, {},
       "Save when the run ends.", kNotLearned},

      {"log.run_dir", at<&L::run_dir>, Unit::kNone, {},
       "Folder of the run; empty = runs/<log.run_name>, in a Slurm job runs/<log.run_name>-<job id>.", kNotLearned},
      {"log.run_name", at<&L::run_name>, Unit::kNone, {},
       "Name of the run in its folder and logs.", kNotLearned},
      {"log.tensorboard", at<&L::tensorboard>, Unit::kNone, {},
       "Write TensorBoard event files.", kNotLearned},
      {"log.profile_steps", at<&L::profile_steps>, Unit::kNone, {},
       "Steps A:B, counted from 1, that an attached GPU profiler records; empty = none.", kNotLearned},

      {"cuda.kernels", at<&U::kernels>, Unit::kNone, {},
       "GPU kernels: auto = those of sm_90a on H100 and H200, portable kernels on other GPUs with compute capability 8.0 or higher; portable = portable kernels on every GPU, without persistent attention, Bertha's own GELU GEMMs, bulk copies, clusters, CUDA graphs and fp8.", kNotLearned},
      {"cuda.attention", at<&U::attention>, Unit::kNone, {},
       "Attention kernels: grouped = one launch per length bucket, on side streams; persistent = one launch (only for bf16 or fp16, head sizes up to 64 and model.max_positions up to 512, with attention dropout in multiples of 128; otherwise refused); split = the same with sequences split into parts, for few tokens; auto = the supported kernels that were measured to be faster.", kNotLearned},
      {"cuda.gelu_gemms", at<&U::gelu_gemms>, Unit::kNone, {},
       "Kernels of GEMMs with a GELU: own = Bertha's (only for bf16, fp16 or fp8, model.hidden in multiples of 64, with fp8 of 128, and model.feed_forward in multiples of 256; otherwise refused); library = cuBLASLt's, with passes after them; auto = own if supported, from the number of rows on that keep every SM busy.", kNotLearned},
      {"cuda.embedding_gradient", at<&U::embedding_gradient>, Unit::kNone, {},
       "How the gradient of the word table is added up: sorted = f32 sums over tokens sorted by word, reproducible bit for bit; atomic = atomic adds.", kNotLearned},
      {"cuda.gemm_plans", at<&U::gemm_plans>, Unit::kNone, {},
       "File of tuned GEMMs for this GPU model and library version; empty = the library's first choice.", kNotLearned},
      {"cuda.tune_gemms", at<&U::tune_gemms>, Unit::kNone, {},
       "Tune each GEMM that cuda.gemm_plans lacks at its first use and add it to the file, which takes about three seconds per GEMM.", kNotLearned},
      {"cuda.gemm_sm_count", at<&U::gemm_sm_count>, Unit::kNone, {0, 1024},
       "Number of SMs that GEMMs are planned for while communication occupies the others; 0 = all.", kNotLearned},
      {"cuda.graphs", at<&U::graphs>, Unit::kNone, {},
       "auto = launch forward and backward as CUDA graphs if their batch size has occurred before, with the same results; not with one attention launch per length bucket (cuda.attention: grouped, fp32, model.max_positions above 512), log.profile_steps or times by operation. off = launch every kernel from the host.", kNotLearned},
      {"cuda.fp8_fast_wgrad", at<&U::fp8_fast_wgrad>, Unit::kNone, {},
       "Sum fp8 weight gradients with 14 bits below the largest product; loss curves show no difference. false = sums in f32, which make BERT-large steps 2 % slower.", kNotLearned},
      {"cuda.exchange", at<&U::exchange>, Unit::kNone, {},
       "How gradients and weights are sent between GPUs: nccl = through NCCL; copies = GPU-to-GPU copies inside each machine, which leave all SMs to the model (needs at most 8 ranks per machine and peer access; otherwise refused); auto = copies if possible.", kNotLearned},
      {"cuda.nccl_max_ctas", at<&U::nccl_max_ctas>, Unit::kNone, {0, 64},
       "Maximum number of SMs that a collective occupies; 0 = NCCL's choice.", kNotLearned},

      {"mlperf.submission_org", at<&P::submission_org>, Unit::kNone, {},
       "Organization in the MLLOG records.", kNotLearned},
      {"mlperf.submission_platform", at<&P::submission_platform>, Unit::kNone, {},
       "System in the MLLOG records.", kNotLearned},
      {"mlperf.division", at<&P::division>, Unit::kNone, {},
       "Division in the MLLOG records; with closed, settings that its rules do not allow are refused.", kNotLearned},
      {"mlperf.status", at<&P::status>, Unit::kNone, {},
       "Submission status in the MLLOG records.", kNotLearned},
      {"mlperf.cache_cleared", at<&P::cache_cleared>, Unit::kNone, {},
       "Whether the page caches of all nodes were emptied before this start; cache_clear in the MLLOG records.", kNotLearned},
  };
}
// clang-format on

}  // namespace

const std::vector<Key>& config_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

std::string_view retired_key(std::string_view path) {
  if (path == kTrustRatio) return "set optimizer.name instead: lamb for true, adamw for false";
  return path == "log.plots" ? "bertha-tools plot draws the curves of a run" : "";
}

const Key* find_key(std::string_view path) {
  const auto& keys = config_keys();
  const auto found = std::ranges::find_if(keys, [&](const Key& key) { return key.path == path; });
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace bertha

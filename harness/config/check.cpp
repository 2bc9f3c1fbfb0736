#include "harness/config/check.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "harness/config/run_plan.h"
#include "kernels/base/error.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

void check_model(const ModelConfig& model, std::vector<std::string>& errors) {
  if (model.hidden % 8 != 0) {
    errors.push_back(concat("model.hidden = ", model.hidden, " is not a multiple of 8; choose ",
                            (model.hidden / 8 + 1) * 8));
  }
  if (model.hidden % model.heads != 0) {
    errors.push_back(concat("model.heads = ", model.heads, " does not divide model.hidden = ",
                            model.hidden, "; choose a divisor of model.hidden"));
  }
  if (model.feed_forward % 8 != 0) {
    errors.push_back(concat("model.feed_forward = ", model.feed_forward,
                            " is not a multiple of 8; choose ", (model.feed_forward / 8 + 1) * 8));
  }
}

void check_data(const Config& config, std::vector<std::string>& errors) {
  const DataConfig& data = config.data;
  if (data.max_seq_tokens > config.model.max_positions) {
    errors.push_back(concat("data.max_seq_tokens = ", data.max_seq_tokens,
                            " exceeds model.max_positions = ", config.model.max_positions,
                            "; lower the first or raise the second"));
  }
  if (data.max_masked_per_seq > data.max_seq_tokens) {
    errors.push_back(concat("data.max_masked_per_seq = ", data.max_masked_per_seq,
                            " exceeds data.max_seq_tokens = ", data.max_seq_tokens, "; lower it"));
  }
}

/// Refuses keys of dynamic masks with stored ones, and dynamic masks with synthetic data.
void check_masking(const DataConfig& data, std::vector<std::string>& errors) {
  const DataConfig defaults;
  if (data.masking == Masking::kDynamic) {
    if (data.synthetic) {
      errors.push_back(
          "data.masking = dynamic and data.synthetic = true exclude each other; write "
          "data.masking: stored for synthetic data");
    }
    if (data.whole_words && data.vocab.empty()) {
      errors.push_back(
          "data.whole_words = true needs the vocabulary; set data.vocab to the vocabulary of the "
          "shards");
    }
    return;
  }
  const auto refuse = [&](const char* key, const auto& value) {
    errors.push_back(concat(key, " = ", value,
                            " needs masks that are drawn in training; write data.masking: dynamic "
                            "or remove the key"));
  };
  if (data.masked_fraction != defaults.masked_fraction) {
    refuse("data.masked_fraction", data.masked_fraction);
  }
  if (data.whole_words != defaults.whole_words) refuse("data.whole_words", "true");
}

/// Synthetic data and shards exclude each other: neither is preferred silently.
void check_synthetic(const DataConfig& data, std::vector<std::string>& errors) {
  if (!data.synthetic && !data.synthetic_lengths.empty()) {
    errors.push_back(concat("data.synthetic_lengths = ", data.synthetic_lengths,
                            " needs synthetic data; set data.synthetic: true or remove the key"));
  }
  if (!data.synthetic) return;
  for (const auto& [key, path] : {std::pair("data.train", data.train), {"data.eval", data.eval}}) {
    if (path.empty()) continue;
    errors.push_back(concat(key, " = ", path, " and data.synthetic = true exclude each other; set ",
                            key, ": \"\" for synthetic data, or data.synthetic: false"));
  }
}

/// Refuses settings that need sm_90a kernels with cuda.kernels: portable.
void check_kernels(const Config& config, std::vector<std::string>& errors) {
  const CudaConfig& cuda = config.cuda;
  if (cuda.kernels != CudaKernels::kPortable) return;
  const auto refuse = [&](const char* key, auto value, auto unable) {
    if (value != unable) return;
    errors.push_back(concat(key, " = ", word_of(value), " needs sm_90a kernels, but ",
                            "cuda.kernels is portable; set one of the two keys to auto"));
  };
  refuse("train.precision", config.train.precision, Precision::kFp8);
  refuse("cuda.attention", cuda.attention, CudaOptions::AttentionVariant::kPersistent);
  refuse("cuda.attention", cuda.attention, CudaOptions::AttentionVariant::kSplit);
  refuse("cuda.gelu_gemms", cuda.gelu_gemms, CudaOptions::GeluGemms::kOwn);
}

void check_checkpoints(const CheckpointConfig& checkpoint, std::vector<std::string>& errors) {
  const int64_t kept = checkpoint.keep_every_steps, saved = checkpoint.every_steps;
  if (kept == 0 || (saved > 0 && kept % saved == 0)) return;
  errors.push_back(concat("checkpoint.keep_every_steps = ", kept,
                          saved == 0 ? ", but checkpoint.every_steps = 0 saves none; set it too"
                                     : concat(" is not a multiple of checkpoint.every_steps = ",
                                              saved, "; choose ", (kept / saved + 1) * saved)));
}

void check_batch(const TrainConfig& train, int world_size, std::vector<std::string>& errors) {
  const int64_t parts = (world_size > 0 ? world_size : 1) * train.accumulation_steps;
  if (train.global_batch_seqs % parts == 0) return;
  const std::string ranks =
      world_size > 0 ? concat(world_size, world_size == 1 ? " rank x " : " ranks x ") : "";
  errors.push_back(concat("train.global_batch_seqs = ", train.global_batch_seqs,
                          " is not divisible by ", ranks,
                          "train.accumulation_steps = ", train.accumulation_steps, " (", parts,
                          "); choose ", (train.global_batch_seqs / parts + 1) * parts));
}

void check_run(const Config& config, std::vector<std::string>& errors) {
  if (config.checkpoint.resume.empty()) {
    errors.push_back("checkpoint.resume is empty; write auto, never or the path of a checkpoint");
  }
  if (config.log.run_name.empty() || config.log.run_name.find('/') != std::string::npos) {
    errors.push_back(concat("log.run_name = \"", shortened(config.log.run_name),
                            "\" cannot name a folder; write a word without \"/\""));
  }
  const std::string& profiled = config.log.profile_steps;
  if (!profiled.empty() && !parse_step_range(profiled)) {
    errors.push_back(
        concat("log.profile_steps = \"", shortened(profiled),
               "\" is not a range of steps; write the first and the last step, such as 11:15"));
  }
}

/// A plan lists every evaluation, and counts sequences in 64 bits.
void check_length(const Config& config, std::vector<std::string>& errors) {
  constexpr double kMaxEvals = 20e6, kMaxSamples = 1e18;
  const TrainConfig& train = config.train;
  const auto batch = static_cast<double>(train.global_batch_seqs);
  double samples = static_cast<double>(train.max_steps) * batch;
  if (train.max_samples > 0) {
    samples = std::min(samples, static_cast<double>(train.max_samples) + batch);
  }
  const int64_t interval = config.eval.every_samples > 0
                               ? config.eval.every_samples
                               : eval_interval_samples(train.global_batch_seqs);
  if (samples > kMaxSamples || samples / static_cast<double>(interval) > kMaxEvals) {
    errors.push_back(concat("train.max_steps = ", train.max_steps, " makes ", samples,
                            " sequences with an evaluation every ", interval,
                            " of them, want at most 1e+18 sequences and 2e+07 evaluations; lower "
                            "train.max_steps or raise eval.every_samples"));
  }
}

void check_optimizer(const Config& config, std::vector<std::string>& errors) {
  const SpikeRule spike = config.optimizer.gradient_spike;
  if (spike != SpikeRule::kWarn && config.optimizer.clip == ClipTime::kBefore) {
    errors.push_back(concat(
        "optimizer.gradient_spike = ", word_of(spike),
        " cannot detect spikes with optimizer.clip = before, which clips each rank's gradients "
        "before their norm is measured; write optimizer.clip: after"));
  }
  const bool is_wsd = config.optimizer.schedule == Schedule::kWsd;
  if (is_wsd != (config.optimizer.decay_steps > 0)) {
    errors.push_back(concat("optimizer.decay_steps = ", config.optimizer.decay_steps,
                            " with optimizer.schedule = ", word_of(config.optimizer.schedule),
                            is_wsd
                                ? "; write the number of steps of the decay"
                                : ", but only wsd uses it; write schedule: wsd or remove the key"));
  }
  if (spike == SpikeRule::kRewind && config.checkpoint.every_steps == 0) {
    errors.push_back(
        "optimizer.gradient_spike = rewind returns to checkpoints, but "
        "checkpoint.every_steps = 0 saves none; set it to the most steps that a rewind may undo");
  }
}

/// A log must not claim "closed" for a run with another optimizer or another loss.
void check_division(const Config& config, std::vector<std::string>& errors) {
  if (config.mlperf.division != Division::kClosed) return;
  if (config.data.synthetic || config.train.overfit_one_batch) return;  // their logs say open
  const OptimizerConfig& optimizer = config.optimizer;
  if (optimizer.name != OptimizerName::kLamb) {
    errors.push_back(
        concat("optimizer.name = ", word_of(optimizer.name),
               " is not the optimizer of the closed division; write mlperf.division: open"));
  }
  if (optimizer.schedule != Schedule::kPolynomial || optimizer.final_fraction > 0) {
    errors.push_back(
        "optimizer.schedule and optimizer.final_fraction differ from the closed division, whose "
        "learning rate decays to zero as a polynomial; write mlperf.division: open");
  }
  if (config.optimizer.gradient_spike != SpikeRule::kWarn) {
    errors.push_back(
        concat("optimizer.gradient_spike = ", word_of(config.optimizer.gradient_spike),
               " skips updates, which the closed division does not allow; write mlperf.division: "
               "open"));
  }
  if (config.data.masking != Masking::kStored) {
    errors.push_back(
        "data.masking = dynamic replaces the masks that the closed division prescribes; write "
        "mlperf.division: open");
  }
  if (config.train.nsp_weight != 1) {
    errors.push_back(
        concat("train.nsp_weight = ", config.train.nsp_weight,
               " is not the loss of the closed division; write mlperf.division: open"));
  }
}

/// "file:line:column: " of the first key in the sentence that was set; "" if none was.
std::string place_of(const std::string& sentence, const LoadedConfig& loaded) {
  constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  size_t first = std::string::npos;
  std::string place;
  for (const auto& [key, origin] : loaded.origins) {
    const size_t at = sentence.find(key);
    if (at >= first || origin == kDefaultOrigin) continue;
    const size_t end = at + key.size();
    if (sentence.find_first_of(kLetters, end) == end) continue;  // a longer key
    first = at;
    place = origin + ": ";
  }
  return place;
}

}  // namespace

std::vector<std::string> contradictions(const LoadedConfig& loaded, int world_size) {
  const Config& config = loaded.config;
  std::vector<std::string> errors;
  check_model(config.model, errors);
  check_data(config, errors);
  check_synthetic(config.data, errors);
  check_masking(config.data, errors);
  check_kernels(config, errors);
  check_checkpoints(config.checkpoint, errors);
  check_batch(config.train, world_size, errors);
  check_run(config, errors);
  check_length(config, errors);
  check_optimizer(config, errors);
  check_division(config, errors);
  for (std::string& error : errors) error.insert(0, place_of(error, loaded));
  return errors;
}

void check_config(const LoadedConfig& loaded, int world_size) {
  const std::vector<std::string> errors = contradictions(loaded, world_size);
  if (errors.empty()) return;
  if (errors.size() == 1) fail(ExitCode::kUsage, errors.front());
  std::string text = concat(errors.size(), " contradictions in the configuration:");
  for (const std::string& error : errors) text += "\n  " + error;
  fail(ExitCode::kUsage, text);
}

std::vector<std::string> config_remarks(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  const RunPlan run = make_run_plan(config);
  std::vector<std::string> remarks;
  if (config.data.synthetic) {
    remarks.push_back(
        "the data are synthetic (data.synthetic): random words that teach a model nothing; "
        "losses and accuracies mean nothing, and no target ends the run");
  }
  if (config.train.overfit_one_batch) {
    remarks.push_back(
        "every step trains on the first batch (train.overfit_one_batch): without dropout its loss "
        "goes to zero; evaluation accuracies mean nothing, and no target ends the run");
  }
  const int64_t warm_step = optimizer.start_warmup_step + optimizer.warmup_steps;
  if (run.last_step == 0) return remarks;  // nothing is trained
  if (optimizer.warmup_steps > 0 && warm_step > run.last_step) {
    remarks.push_back(concat("the run ends at step ", run.last_step, " but its warm-up at step ",
                             warm_step,
                             ": the learning rate never reaches "
                             "optimizer.base_learning_rate; optimizer.warmup_steps is ",
                             optimizer.warmup_steps));
  }
  const bool ends_at_zero =
      optimizer.schedule != Schedule::kConstant && optimizer.final_fraction == 0;
  if (run.schedule_steps < run.last_step && ends_at_zero) {
    remarks.push_back(concat("the learning rate is zero for the last ",
                             run.last_step - run.schedule_steps,
                             " steps; optimizer.schedule_steps is ", run.schedule_steps));
  }
  return remarks;
}

}  // namespace bertha

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "data/format/manifest.h"
#include "data/format/shard_names.h"
#include "harness/checkpoint/weight_source.h"
#include "harness/cli/command.h"
#include "harness/cli/config_options.h"
#include "harness/cli/options.h"
#include "harness/cli/plan_model.h"
#include "harness/config/check.h"
#include "harness/config/keys.h"
#include "harness/model/encoder_gemms.h"
#include "harness/report/text_format.h"
#include "harness/train/precision.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

struct PlanOptions {
  int64_t ranks = 1;
  std::string gpu_memory;
};

/// Takes the mean lengths from manifest.json of data.train; nothing is known without one. Returns
/// the number of samples, 0 where it is not known. Reads no shard.
int64_t read_data_means(PlanRequest& request) {
  const std::string& folder = request.config.data.train;
  const fs::path path = fs::path(folder) / kManifestName;
  if (folder.empty() || !fs::exists(path)) return 0;
  const Manifest manifest = read_manifest(path.string());
  double samples = 0;
  double tokens = 0;
  double squared = 0;
  for (size_t length = 0; length < manifest.token_length_histogram.size(); ++length) {
    const auto count = static_cast<double>(manifest.token_length_histogram[length]);
    const auto long_as = static_cast<double>(length);
    samples += count;
    tokens += count * long_as;
    squared += count * long_as * long_as;
  }
  if (samples > 0) {
    request.mean_seq_tokens = tokens / samples;
    request.mean_squared_tokens = squared / samples;
  }
  return manifest.num_samples();
}

/// A sentence for each input that a run would lack.
struct MissingInputs {
  std::vector<std::string> unset;  // keys without a path
  std::vector<std::string> wrong;  // paths that do not exist, or are something else
};

struct Input {
  const char* key;
  const std::string& path;
  const char* what_to_do;
  bool is_file = false;
};

std::string found_wrong(const Input& input) {
  if (!fs::exists(input.path)) {
    return concat(input.key, ": ", input.path, " does not exist; ", input.what_to_do);
  }
  if (input.is_file && fs::is_directory(input.path)) {
    return concat(input.key, ": ", input.path, " is a folder, want a file; ", input.what_to_do);
  }
  return "";
}

/// What a training run of this configuration would not find, one sentence each with what to do.
MissingInputs missing_inputs(const Config& config) {
  const DataConfig& data = config.data;
  const Input inputs[] = {
      {"data.train", data.train, "make shards with `bertha data prepare` and name their folder"},
      {"data.eval", data.eval, "make shards with `bertha data prepare` and name their folder"},
      {"data.vocab", data.vocab,
       "make one with `bertha data vocab` or name the published vocab.txt", true},
  };
  MissingInputs found;
  std::vector<std::string>& missing = found.wrong;
  for (const Input& input : inputs) {
    if (data.synthetic) break;  // needs none of them
    if (input.path.empty()) {
      found.unset.push_back(concat(input.key, " is not set; ", input.what_to_do));
    } else if (const std::string wrong = found_wrong(input); !wrong.empty()) {
      missing.push_back(wrong);
    }
  }
  const auto look_into = [&missing](const char* key, const auto& look) {
    try {
      look();
    } catch (const Error& error) {
      missing.push_back(concat(key, ": ", error.what()));
    }
  };
  for (const Input& input : {inputs[0], inputs[1]}) {
    if (input.path.empty() || !fs::exists(input.path)) continue;
    look_into(input.key, [&] { list_shards(input.path); });
  }
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (!checkpoint.init.empty()) {
    look_into("checkpoint.init", [&] { locate_weights(checkpoint.init); });
  }
  const bool named = checkpoint.resume != "auto" && checkpoint.resume != "never";
  if (named && !fs::exists(checkpoint.resume)) {
    missing.push_back(concat("checkpoint.resume: ", checkpoint.resume,
                             " does not exist; name a checkpoint, or write auto or never"));
  }
  return found;
}

void print_row(const std::string& name, const std::string& value) {
  std::string label = "  " + name;
  label.resize(std::max<size_t>(label.size() + 1, 30), ' ');
  std::cout << label << value << '\n';
}

void print_model(const PlanRequest& request, const CostPlan& plan) {
  const ModelConfig& model = request.config.model;
  std::cout << "model " << model.name << '\n';
  print_row("shape",
            concat(model.layers, " layers, hidden ", model.hidden, ", ", model.heads,
                   " heads, feed-forward ", model.feed_forward, ", vocabulary ", model.vocab_size));
  print_row("parameters", grouped_text(plan.parameters));
}

std::string what_would_fit(const PlanRequest& request, int64_t most_bytes) {
  const MemoryFit fit = fit_into(request, most_bytes);
  const int64_t seqs = fit.seqs_per_micro_batch;
  if (seqs == 0) {
    return "does not fit, not even with one sequence per micro-batch; take more ranks or a smaller "
           "model";
  }
  std::string text = concat("does not fit; ", seqs, " sequence(s) per micro-batch would: ");
  std::string advice;
  if (fit.accumulation_steps == 0) {
    advice = "change train.global_batch_seqs or the ranks";
  } else if (fit.accumulation_steps != request.config.train.accumulation_steps) {
    advice = concat("set train.accumulation_steps to ", fit.accumulation_steps);
  }
  if (request.config.eval.batch_seqs > seqs) {
    advice += concat(advice.empty() ? "set " : ", and ", "eval.batch_seqs to ", seqs);
  }
  return text + advice;
}

/// Whether it fits into `limit`; true without one.
bool print_memory(const PlanRequest& request, const CostPlan& plan, const std::string& limit,
                  int64_t limit_bytes) {
  std::cout << "\nmemory per rank (" << name(request.io) << " weights and activations, "
            << plan.seqs_per_micro_batch << " sequences per micro-batch, all at full length)\n";
  if (request.fp8) print_row("fp8 GEMMs", describe_fp8_passes());
  for (const MemoryClass& part : plan.memory) print_row(part.name, bytes_text(part.bytes));
  print_row("together", bytes_text(plan.memory_bytes));
  if (limit.empty()) return true;
  const double part = static_cast<double>(plan.memory_bytes) / static_cast<double>(limit_bytes);
  print_row("of " + limit, concat(fixed_text(100 * part, 1),
                                  "%: ", part > 1 ? what_would_fit(request, limit_bytes) : "fits"));
  return part <= 1;
}

void print_work(const PlanRequest& request, const CostPlan& plan, int64_t num_samples) {
  const TrainConfig& train = request.config.train;
  std::cout << "\nwork\n";
  print_row("steps", concat(grouped_text(plan.run.last_step), " of ", train.global_batch_seqs,
                            " sequences on ", request.ranks, " rank(s), ", train.accumulation_steps,
                            " micro-batch(es) per step"));
  print_row("samples", grouped_text(plan.run.last_samples));
  if (num_samples > 0) {
    const auto epochs =
        static_cast<double>(plan.run.last_samples) / static_cast<double>(num_samples);
    print_row("epochs",
              concat(fixed_text(epochs, 2), " of ", grouped_text(num_samples), " sequences"));
    print_row("mean length", concat(fixed_text(request.mean_seq_tokens, 1), " tokens"));
  } else {
    print_row("epochs", "unknown: data.train has no manifest.json yet");
  }
  const std::string lengths =
      request.mean_seq_tokens > 0 ? "at the mean length of data.train" : "at full length";
  print_row("FLOPs per sequence", concat(scaled_text(static_cast<double>(plan.flops_per_seq)), " (",
                                         lengths, "; 2 per multiply-add, backward twice forward)"));
  print_row("FLOPs of the run", exponent_text(plan.flops_per_run));
}

void print_schedule(const Config& config, const RunPlan& run) {
  const OptimizerConfig& optimizer = config.optimizer;
  std::cout << "\nschedule\n";
  print_row("learning rate",
            concat(value_text(*find_key("optimizer.base_learning_rate"), config), ", ",
                   optimizer.warmup_steps, " warm-up steps from step ", optimizer.start_warmup_step,
                   ", zero at step ", grouped_text(run.schedule_steps)));
  for (const std::string& remark : config_remarks(config)) print_row("note", remark);
  const double target = config.train.target_accuracy;
  print_row("target", target > 0 ? "masked-token accuracy " + fixed_text(target, 3)
                                 : std::string("none: trains to the last step"));
  print_row("evaluations",
            concat(run.evals.size(), ", every ", grouped_text(run.eval_interval_samples),
                   " samples from ", grouped_text(run.eval_start_samples)));
  for (const PlannedEval& eval : run.evals) {
    constexpr size_t kShown = 40;
    if (static_cast<size_t>(&eval - run.evals.data()) >= kShown) {
      print_row("", concat("... and ", run.evals.size() - kShown, " more"));
      break;
    }
    print_row("",
              concat("step ", grouped_text(eval.step), "  samples ", grouped_text(eval.samples)));
  }
}

int run_plan_command(const CLI::App& command, const PlanOptions& options) {
  const std::string& limit = options.gpu_memory;
  const int64_t limit_bytes = limit.empty() ? 0 : parse_bytes(limit);
  PlanRequest request{.config = load_from_options(command).config, .ranks = options.ranks};
  check_config(request.config, static_cast<int>(options.ranks));
  const bool on_gpu = request.config.train.backend == "cuda" || !limit.empty();
  request.io = planned_io(request.config.train, on_gpu);
  request.fp8 = has_fp8_gemms(request.config.train);
  request.on_gpu = on_gpu;
  const int64_t num_samples = read_data_means(request);
  const CostPlan plan = make_cost_plan(request);
  print_model(request, plan);
  const bool fits = print_memory(request, plan, limit, limit_bytes);
  print_work(request, plan, num_samples);
  print_schedule(request.config, plan.run);
  const MissingInputs missing = missing_inputs(request.config);
  std::cout << "\nmissing\n";
  if (missing.unset.empty() && missing.wrong.empty()) std::cout << "  nothing\n";
  for (const std::string& sentence : missing.unset) std::cout << "  " << sentence << '\n';
  for (const std::string& sentence : missing.wrong) std::cout << "  " << sentence << '\n';
  if (!fits) return static_cast<int>(ExitCode::kMemory);
  return static_cast<int>(missing.wrong.empty() ? ExitCode::kSuccess : ExitCode::kData);
}

}  // namespace

void add_plan_command(CLI::App& program, Chosen& chosen) {
  CLI::App& plan = add_command(
      program, chosen,
      {.name = "plan",
       .description =
           "Prints what a run would take: memory, FLOPs, steps, evaluations, and what is "
           "missing. Needs no GPU and no data. Exits with 6 when the run does not fit into "
           "--gpu-memory, and with 4 when a path that the configuration names cannot "
           "serve.",
       .examples = {"bertha plan --config configs/mlperf_closed_8gpu_448.yaml --ranks 8",
                    "bertha plan --config configs/mlperf_closed_8gpu_768.yaml --ranks 8 "
                    "--gpu-memory 141GB",
                    "bertha plan --config configs/quickstart.yaml --ranks 2 --max-steps 500"}});
  add_config_options(plan, ShortOptions::kTraining);
  const auto options = std::make_shared<PlanOptions>();
  add_count(plan, "--ranks", options->ranks, "Ranks of the run (default 1)", 1, 1 << 20);
  add_text(plan, "--gpu-memory", options->gpu_memory, "SIZE",
           "Memory of a GPU, such as 141GB or 80GiB; implies a GPU");
  set_action(plan, chosen,
             [&plan, options](CommandContext&) { return run_plan_command(plan, *options); });
}

}  // namespace bertha

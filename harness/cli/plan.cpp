#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <ranges>

#include "data/format/manifest.h"
#include "harness/cli/command.h"
#include "harness/cli/config_options.h"
#include "harness/cli/log_sink.h"
#include "harness/cli/missing_inputs.h"
#include "harness/cli/options.h"
#include "harness/config/check.h"
#include "harness/config/keys.h"
#include "harness/model/encoder_gemms.h"
#include "harness/plan/plan_report.h"
#include "harness/plan/seq_lengths.h"
#include "harness/report/json_report.h"
#include "harness/report/text_format.h"
#include "harness/train/data_source.h"
#include "harness/train/precision.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGpusPerNode = 8;  // of most machines with NVLink

struct PlanOptions {
  int64_t ranks = 1;
  int64_t ranks_per_node = 0;  // 0 = not given
  std::string gpu_memory;
  std::string json;
};

/// The training samples, as far as they are known without reading a shard.
struct DataFacts {
  int64_t num_samples = 0;  // 0 = not known
  LengthHistogram lengths;
  std::string source;  // of the lengths
};

/// That of a folder. Nothing where there is none, or no sample.
std::optional<Manifest> manifest_of(const std::string& folder) {
  const auto found = fs::is_directory(folder) ? find_manifest(folder) : std::nullopt;
  return found && found->num_samples() > 0 ? found : std::nullopt;
}

/// By manifest.json of data.train. Without one lengths are those of the benchmark's samples, if
/// sequences are as long as those may be, and else all at full length.
DataFacts data_facts(const DataConfig& data) {
  if (data.synthetic) return {.lengths = synthetic_lengths(data), .source = "data.synthetic"};
  if (const std::optional<Manifest> manifest = manifest_of(data.train)) {
    return {.num_samples = manifest->num_samples(),
            .lengths = manifest->token_length_histogram,
            .source = "data.train"};
  }
  DataFacts facts{.lengths = published_lengths(), .source = "the benchmark's samples"};
  if (std::ssize(facts.lengths) - 1 != data.max_seq_tokens) {
    facts.lengths.assign(static_cast<size_t>(data.max_seq_tokens) + 1, 0);
    facts.lengths.back() = 1;
    facts.source = "full sequences";
  }
  return facts;
}

void print_row(const std::string& name, const std::string& value) {
  print_text(fact_line(name, value, kPlanColumns));
}

void print_model(const PlanRequest& request, const CostPlan& plan) {
  const ModelConfig& model = request.config.model;
  std::cout << "model " << model.name << '\n';
  print_row("shape",
            concat(model.layers, " layers, hidden ", model.hidden, ", ", model.heads,
                   " heads, feed-forward ", model.feed_forward, ", vocabulary ", model.vocab_size));
  print_row("parameters", grouped_text(plan.parameters));
}

std::string what_would_fit(const PlanRequest& request, const MemoryFit& fit) {
  const int64_t seqs = fit.seqs_per_micro_batch;
  if (seqs == 0) {
    return "does not fit, not even with one sequence per micro-batch; take more ranks or a smaller "
           "model";
  }
  std::string text =
      concat("does not fit; ", counted_text(seqs, "sequence"), " per micro-batch would: ");
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

void print_memory(const PlanRequest& request, const PlanFacts& facts, const std::string& limit) {
  const CostPlan& plan = facts.cost;
  print_text(concat("\nmemory per rank (", name(request.io), " weights and activations, ",
                    counted_text(plan.seqs_per_micro_batch, "sequence"),
                    " per micro-batch, all at full length)\n"));
  if (request.fp8) print_row("fp8 GEMMs", kFp8Gemms);
  for (const MemoryClass& part : plan.memory) print_row(part.name, bytes_text(part.bytes));
  print_row("together", bytes_text(plan.memory_bytes));
  if (!facts.fit) return;
  const double part =
      static_cast<double>(plan.memory_bytes) / static_cast<double>(facts.memory_limit_bytes);
  print_row("of " + limit,
            concat(fixed_text(100 * part, 1), "%: ",
                   facts.fits() ? concat("fits; up to ",
                                         counted_text(facts.fit->seqs_per_micro_batch, "sequence"),
                                         " per micro-batch would")
                                : what_would_fit(request, *facts.fit)));
}

void print_work(const PlanRequest& request, const CostPlan& plan, const DataFacts& data) {
  const TrainConfig& train = request.config.train;
  std::cout << "\nwork\n";
  print_row("steps", concat(grouped_text(plan.run.last_step), " of ", train.global_batch_seqs,
                            " sequences on ", counted_text(request.ranks, "rank"), ", ",
                            counted_text(train.accumulation_steps, "micro-batch"), " per step"));
  print_row("samples", grouped_text(plan.run.last_samples));
  if (data.num_samples > 0) {
    const auto epochs =
        static_cast<double>(plan.run.last_samples) / static_cast<double>(data.num_samples);
    print_row("epochs",
              concat(fixed_text(epochs, 2), " of ", grouped_text(data.num_samples), " sequences"));
  } else {
    print_row("epochs", request.config.data.train.empty()
                            ? "unknown: data.train is not set"
                            : "unknown: data.train has no manifest.json yet");
  }
  print_row("mean length",
            concat(fixed_text(request.mean_seq_tokens, 1), " tokens: ", data.source));
  print_row("FLOPs per sequence", concat(scaled_text(static_cast<double>(plan.flops_per_seq)),
                                         " (2 per multiply-add, backward twice forward)"));
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
  print_row(
      "evaluations",
      concat(run.num_evals(), ", every ", grouped_text(run.eval_interval_samples), " samples from ",
             grouped_text(run.eval_start_samples), run.has_eval_at_end() ? " and at the end" : ""));
  constexpr int64_t kShown = 40;
  std::vector<PlannedEval> evals = run.evals;
  if (run.has_eval_at_end()) evals.push_back({.samples = run.last_samples, .step = run.last_step});
  for (const PlannedEval& eval : evals | std::views::take(kShown)) {
    print_row("",
              concat("step ", grouped_text(eval.step), "  samples ", grouped_text(eval.samples)));
  }
  const int64_t more = std::ssize(evals) - kShown;
  if (more > 0) print_row("", concat("... and ", more, " more"));
}

void print_missing(const std::vector<std::string>& sentences) {
  std::cout << "\nmissing\n";
  if (sentences.empty()) std::cout << "  nothing\n";
  for (const std::string& sentence : sentences) print_text("  " + sentence + '\n');
}

/// Sequences of an evaluation, by the manifest and eval.max_samples; else the benchmark's number.
int64_t eval_seqs(const Config& config) {
  constexpr int64_t kBenchmarkSeqs = 10'000;
  const auto manifest = manifest_of(config.data.eval);
  const int64_t seqs = manifest ? manifest->num_samples() : kBenchmarkSeqs;
  return config.eval.max_samples > 0 ? std::min(seqs, config.eval.max_samples) : seqs;
}

void print_time(const PlanRequest& request, const std::optional<TimeEstimate>& time) {
  std::cout << "\ntime\n";
  if (!time) {
    print_text("  not estimated: only steps of 16 bits and fp8 on H200s have been measured\n");
    return;
  }
  print_row("at", concat(scaled_text(time->flops_per_second), "FLOP/s of each H200 in ",
                         request.fp8 ? "fp8" : "16 bits",
                         ", as BERT-large with 24,576 tokens per step reaches"));
  print_row("step", fixed_text(time->step_ms, 1) + " ms");
  print_row("sequences/s", grouped_text(static_cast<int64_t>(time->seqs_per_second)));
  print_row("run", concat(duration_text(time->seconds), " to the last step, evaluations included"));
  print_row("note", "smaller steps and the exchange between nodes take longer: bertha scale");
}

int run_plan_command(const CLI::App& command, const PlanOptions& options, CommandContext&) {
  const std::string& limit = options.gpu_memory;
  PlanFacts facts{.memory_limit_bytes = limit.empty() ? 0 : parse_bytes(limit)};
  PlanRequest request{.config = load_from_options(command).config, .ranks = options.ranks};
  check_config(request.config, static_cast<int>(options.ranks));
  const TrainConfig& train = request.config.train;
  request.on_gpu = train.backend != ComputeBackend::kCpu || !limit.empty();
  request.ranks_per_node = options.ranks_per_node;
  if (request.on_gpu && request.ranks_per_node == 0) request.ranks_per_node = kGpusPerNode;
  request.io = planned_io(train, request.on_gpu);
  request.fp8 = has_fp8_gemms(train);
  const DataFacts data = data_facts(request.config.data);
  const LengthMeans means = means_of(data.lengths, request.config.data.max_seq_tokens);
  request.mean_seq_tokens = means.tokens;
  request.mean_squared_tokens = means.squared_tokens;
  request.mean_masked_per_seq = kMaskedShare * means.tokens;
  facts.cost = make_cost_plan(request);
  if (!limit.empty()) facts.fit = fit_into(request, facts.memory_limit_bytes);
  if (request.on_gpu && request.io != DType::kF32) {
    facts.time = estimate_time(request, facts.cost, eval_seqs(request.config));
  }
  const MissingInputs missing = missing_inputs(request.config);
  for (const auto* sentences : {&missing.unset, &missing.wrong}) {
    facts.missing.insert(facts.missing.end(), sentences->begin(), sentences->end());
  }

  if (prints_text(options.json)) {
    print_model(request, facts.cost);
    print_memory(request, facts, limit);
    print_work(request, facts.cost, data);
    print_schedule(request.config, facts.cost.run);
    print_time(request, facts.time);
    print_missing(facts.missing);
  }
  const ExitCode code = !facts.fits()           ? ExitCode::kMemory
                        : missing.wrong.empty() ? ExitCode::kSuccess
                                                : ExitCode::kData;
  ReportJson json = plan_json(facts);
  // What `bertha scale` needs besides.
  json["eval_seqs"] = eval_seqs(request.config);
  json["token_length_histogram"] = data.lengths;
  for (const Key& key : config_keys()) {
    std::visit([&](const auto& value) { json["config"][std::string(key.path)] = *value; },
               key.field(request.config));
  }
  write_json_report(options.json, "plan", code, json);
  return static_cast<int>(code);
}

}  // namespace

void add_plan_command(CLI::App& program, Chosen& chosen) {
  CLI::App& plan = add_command(
      program, chosen,
      {.name = "plan",
       .description =
           "Prints what a run would take: memory, FLOPs, steps, evaluations and time, and what is "
           "missing. Plans for H200s unless train.backend is cpu; needs no GPU and no data. Exits "
           "with 6 when the run does not fit into --gpu-memory, and with 4 when a path that the "
           "configuration names cannot serve.",
       .examples = {"bertha plan --config configs/mlperf_closed_8gpu_448.yaml --ranks 8",
                    "bertha plan --config configs/mlperf_closed_8gpu_768.yaml --ranks 8 "
                    "--gpu-memory 141GB",
                    "bertha plan --config configs/quickstart.yaml --ranks 2 --max-steps 500"}});
  add_config_options(plan, ShortOptions::kTraining);
  PlanOptions& options = set_action<PlanOptions>(plan, chosen, run_plan_command);
  add_count(plan, "--ranks", options.ranks, "Ranks of the run (default 1)", 1, 1 << 20);
  add_text(plan, "--gpu-memory", options.gpu_memory, "SIZE",
           "Memory of a GPU, such as 141GB or 80GiB; implies a GPU");
  add_count(plan, "--ranks-per-node", options.ranks_per_node,
            concat("Ranks on each node, with GPUs that are all connected by NVLink (default ",
                   kGpusPerNode, ", without GPUs all on one)"),
            1, 1 << 20);
  add_json(plan, options.json);
}

}  // namespace bertha

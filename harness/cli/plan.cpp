#include <algorithm>
#include <filesystem>
#include <optional>

#include "data/format/manifest.h"
#include "data/format/shard_names.h"
#include "data/prepare/vocabulary.h"
#include "harness/checkpoint/load_weights.h"
#include "harness/cli/command.h"
#include "harness/cli/config_options.h"
#include "harness/cli/options.h"
#include "harness/config/check.h"
#include "harness/plan/plan_report.h"
#include "harness/train/data_check.h"
#include "harness/train/data_source.h"
#include "harness/train/precision.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kGpusPerNode = 8;  // as in most machines with NVLink

struct PlanOptions {
  int64_t ranks = 1;
  int64_t ranks_per_node = 0;  // 0 = not given
  std::string gpu_memory;
  std::string json;
};

/// The manifest of a folder; none if it counts no samples.
std::optional<Manifest> manifest_of(const std::string& folder) {
  const auto found = fs::is_directory(folder) ? find_manifest(folder) : std::nullopt;
  return found && found->num_samples() > 0 ? found : std::nullopt;
}

/// Adds facts about the training samples from manifest.json of data.train, without reading a shard.
/// Without a manifest, lengths follow the benchmark's samples if data.max_seq_tokens is their
/// longest; otherwise all sequences have full length.
void add_data_facts(const DataConfig& data, PlanFacts& facts) {
  if (data.synthetic) {
    facts.lengths = synthetic_lengths(data);
    facts.lengths_source = "data.synthetic";
  } else if (const std::optional<Manifest> manifest = manifest_of(data.train)) {
    facts.num_samples = manifest->num_samples();
    facts.lengths = manifest->token_length_histogram;
    facts.lengths_source = "data.train";
  } else if (facts.lengths = published_lengths();
             std::ssize(facts.lengths) - 1 == data.max_seq_tokens) {
    facts.lengths_source = "the benchmark's samples";
  } else {
    facts.lengths.assign(static_cast<size_t>(data.max_seq_tokens) + 1, 0);
    facts.lengths.back() = 1;
    facts.lengths_source = "full sequences";
  }
}

/// Sequences per evaluation, from the manifest and eval.max_samples; else the benchmark's number.
int64_t eval_seqs(const Config& config) {
  constexpr int64_t kBenchmarkSeqs = 10'000;
  const auto manifest = manifest_of(config.data.eval);
  const int64_t seqs = manifest ? manifest->num_samples() : kBenchmarkSeqs;
  return config.eval.max_samples > 0 ? std::min(seqs, config.eval.max_samples) : seqs;
}

/// An input of a training run.
struct Input {
  const char* key;
  const std::string& path;
  const char* what_to_do;
  bool is_vocabulary = false;
};

/// Messages about missing inputs of a run, each with what to do.
struct MissingInputs {
  std::vector<std::string> unset = {};  // keys without a path
  std::vector<std::string> wrong = {};  // paths that do not exist, or are something else

  /// Adds the error that `look` throws, if any.
  void look_into(const char* key, const auto& look) {
    try {
      look();
    } catch (const Error& error) {
      wrong.push_back(fmt::format("{}: {}", key, error.what()));
    }
  }
};

void look_for(const Input& input, MissingInputs& missing) {
  if (input.path.empty()) {
    missing.unset.push_back(fmt::format("{} is not set; {}", input.key, input.what_to_do));
  } else if (!fs::exists(input.path)) {
    missing.wrong.push_back(
        fmt::format("{}: {} does not exist; {}", input.key, input.path, input.what_to_do));
  } else if (!input.is_vocabulary) {
    missing.look_into(input.key, [&] { list_shards(input.path); });
  } else {
    missing.look_into(input.key, [&] { Vocabulary::load(input.path); });
  }
}

MissingInputs missing_inputs(const Config& config) {
  constexpr const char* kMakeShards =
      "prepare shards with `bertha data prepare` and give their folder";
  const DataConfig& data = config.data;
  MissingInputs missing;
  if (!data.synthetic) {
    look_for({"data.train", data.train, kMakeShards}, missing);
    look_for({"data.eval", data.eval, kMakeShards}, missing);
    look_for({"data.vocab", data.vocab,
              "train one with `bertha data vocab` or give the published vocab.txt", true},
             missing);
    if (missing.unset.empty() && missing.wrong.empty()) {
      missing.look_into("data", [&] { check_data(config, 0, 1, false); });
    }
  }
  const CheckpointConfig& checkpoint = config.checkpoint;
  if (!checkpoint.init.empty()) {
    missing.look_into("checkpoint.init", [&] { check_initial_weights(config); });
  }
  const bool is_named = checkpoint.resume != "auto" && checkpoint.resume != "never";
  if (is_named && !fs::exists(checkpoint.resume)) {
    missing.wrong.push_back(fmt::format(
        "checkpoint.resume: {} does not exist; give a checkpoint, or write auto or never",
        checkpoint.resume));
  }
  return missing;
}

int run_plan_command(const CLI::App& command, const PlanOptions& options, CommandContext&) {
  const std::string& limit = options.gpu_memory;
  const LoadedConfig loaded = load_from_options(command, static_cast<int>(options.ranks));
  check_config(loaded, static_cast<int>(options.ranks));
  PlanFacts facts{.request = {.config = loaded.config, .ranks = options.ranks},
                  .memory_limit = limit,
                  .memory_limit_bytes = limit.empty() ? 0 : parse_bytes(limit)};
  PlanRequest& request = facts.request;
  const Config& config = request.config;
  request.on_gpu = config.train.backend != ComputeBackend::kCpu || !limit.empty();
  request.ranks_per_node = options.ranks_per_node;
  if (request.on_gpu && request.ranks_per_node == 0) request.ranks_per_node = kGpusPerNode;
  request.io = planned_io(config.train, request.on_gpu);
  request.fp8 = has_fp8_gemms(config.train);
  add_data_facts(config.data, facts);
  const LengthMeans means = means_of(facts.lengths, config.data.max_seq_tokens);
  request.mean_seq_tokens = means.tokens;
  request.mean_squared_tokens = means.squared_tokens;
  const bool dynamic = config.data.masking == Masking::kDynamic;
  request.mean_masked_per_seq =
      (dynamic ? config.data.masked_fraction : kMaskedShare) * means.tokens;
  facts.cost = make_cost_plan(request);
  facts.eval_seqs = eval_seqs(config);
  if (!limit.empty()) facts.fit = fit_into(request, facts.memory_limit_bytes);
  if (request.on_gpu && request.io != DType::kF32) {
    facts.time = estimate_time(request, facts.cost, facts.eval_seqs);
  }
  const MissingInputs missing = missing_inputs(config);
  facts.missing = missing.unset;
  facts.missing.insert(facts.missing.end(), missing.wrong.begin(), missing.wrong.end());
  const ExitCode code = !facts.fits()           ? ExitCode::kMemory
                        : missing.wrong.empty() ? ExitCode::kSuccess
                                                : ExitCode::kData;
  write_report(report_of(facts), options.json, "plan", code);
  return static_cast<int>(code);
}

}  // namespace

void add_plan_command(CLI::App& program, Chosen& chosen) {
  CLI::App& plan = add_command(
      program, chosen,
      {.name = "plan",
       .description =
           "Prints what a run would need: memory, FLOPs, steps, evaluations and time, and which "
           "inputs are missing. Plans for H200s unless train.backend is cpu; needs no GPU and no "
           "data. Exit code 6 if the run does not fit into --gpu-memory, 4 if a path in the "
           "configuration cannot be used.",
       .examples = {"bertha plan --config configs/mlperf_closed_8gpu_448.yaml --ranks 8",
                    "bertha plan --config configs/mlperf_closed_8gpu_768.yaml --ranks 8 "
                    "--gpu-memory 141GB",
                    "bertha plan --config configs/quickstart.yaml --ranks 2 --max-steps 500"}});
  add_config_options(plan, ShortOptions::kTraining);
  PlanOptions& options = set_action<PlanOptions>(plan, chosen, run_plan_command);
  add_count(plan, "--ranks", options.ranks, "Ranks of the run (default 1)", 1, 1 << 20);
  add_text(plan, "--gpu-memory", options.gpu_memory, "SIZE",
           "Memory of a GPU, such as 141GB or 80GiB; plans for GPUs");
  add_count(plan, "--ranks-per-node", options.ranks_per_node,
            fmt::format("Ranks on each node, whose GPUs are all connected by NVLink (default {}; "
                        "without GPUs, all ranks on one node)",
                        kGpusPerNode),
            1, 1 << 20);
  add_json(plan, options.json);
}

}  // namespace bertha

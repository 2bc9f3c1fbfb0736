#include "harness/train/replay.h"

#include <algorithm>
#include <memory>

#include "harness/checkpoint/load_weights.h"
#include "harness/cli/command.h"
#include "harness/cli/log_sink.h"
#include "harness/cli/options.h"
#include "harness/comm/binding.h"
#include "harness/report/json_report.h"
#include "harness/train/precision.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

struct ReplayOptions {
  std::string path;
  std::string backend = "auto";
  std::string json;
};

/// The figures of the step on this backend, and what it computed with.
struct Replayed {
  std::string device = {};
  DType io = DType::kF32;
  bool fp8 = false;
  std::vector<TensorFigures> figures = {};
};

struct ReplayInputs {
  PostMortem post_mortem;
  ParamTable table = {};
  std::vector<float> weights = {};  // [table.elements]
};

ReplayInputs read_inputs(const std::string& path) {
  ReplayInputs in{.post_mortem = read_post_mortem(path)};
  const PostMortem& post_mortem = in.post_mortem;
  if (post_mortem.weights.empty()) {
    std::string tensors;
    for (const std::string& tensor : post_mortem.weights_not_finite) tensors += " " + tensor + ";";
    fail(ExitCode::kData, path, ": post_mortem.safetensors does not lie beside it",
         tensors.empty() ? "; put it there."
                         : concat(", because these are not finite:", tensors,
                                  " go on from a checkpoint before."));
  }
  const Dims dims = make_dims(post_mortem.config.model);
  in.table = make_param_table(dims, parse_decay_rule(post_mortem.config.optimizer.decay_rule));
  in.weights.resize(static_cast<size_t>(in.table.elements));
  load_weights({.path = post_mortem.weights}, post_mortem.config.model, in.table,
               in.weights.data());
  return in;
}

/// With `weights`, [in.table.elements].
Replayed replay_on(const ReplayInputs& in, const std::vector<float>& weights,
                   const BackendChoice& choice, World& world) {
  const bool on_gpu = choice.kind == BackendChoice::Kind::kCuda;
  const Config& config = in.post_mortem.config;
  const CoreShare cores = take_core_share(world, choice.gpu_bus_id);
  const Backend backend = make_backend(choice, config.cuda, cores.threads, world);
  Replayed replayed{.device = backend.device->description()};
  if (on_gpu) {
    replayed.io = choose_io(config, *backend.device);
    replayed.fp8 = has_fp8_gemms(config.train);
  }
  replayed.figures = replay_step(in.post_mortem, in.table, weights,
                                 {.device = backend.device.get(),
                                  .stream = backend.stream.get(),
                                  .ops = backend.ops.get(),
                                  .io = replayed.io,
                                  .fp8 = replayed.fp8});
  return replayed;
}

/// The step in fp32 on the CPU, its tensors those of the run: with fp8 that keeps none before and
/// behind the GELU of a layer, see named_activations().
std::vector<TensorFigures> in_fp32(const ReplayInputs& in, const std::vector<float>& weights,
                                   World& world) {
  std::vector<TensorFigures> figures = replay_on(in, weights, {}, world).figures;
  if (!has_fp8_gemms(in.post_mortem.config.train)) return figures;
  std::erase_if(figures, [&](const TensorFigures& tensor) {
    return (tensor.name.ends_with("feed_forward.before_gelu") ||
            tensor.name.ends_with("feed_forward.after_gelu")) &&
           std::ranges::find(in.post_mortem.figures, tensor.name, &TensorFigures::name) ==
               in.post_mortem.figures.end();
  });
  return figures;
}

/// Terms of the longest sum: over tokens in a weight gradient, over the vocabulary in the gradient
/// that comes from the logits, or over a feed-forward block.
int64_t most_terms(const PostMortem& post_mortem) {
  int64_t tokens = 0;
  for (const TracedStep::MicroBatch& micro : post_mortem.traced.micro_batches) {
    tokens += micro.batch.num_tokens;
  }
  const ModelConfig& model = post_mortem.config.model;
  return std::max({tokens, model.feed_forward, model.vocab_size});
}

/// Where no figure of a run is wrong.
std::string nothing_wrong_text(const Reference& reference, double rounding) {
  const auto all = static_cast<int64_t>(reference.figures.size());
  int64_t not_judged = 0;
  for (size_t i = 0; i < reference.figures.size(); ++i) {
    if (figure_tolerance(reference, i, rounding) >= 1) ++not_judged;
  }
  if (not_judged == 0) {
    return concat("all ", all, " tensors are finite and as fp32 on the CPU computes them");
  }
  return concat("all ", all, " tensors are finite; roundings alone explain any value of ",
                not_judged, " of them, and the others are as fp32 on the CPU computes them");
}

int run_replay(const ReplayOptions& options, World& world) {
  if (world.size() != 1) {
    fail(ExitCode::kUsage, "replay runs on one rank, found ", world.size(),
         "; start it without mpirun.");
  }
  const ReplayInputs in = read_inputs(options.path);
  const PostMortem& post_mortem = in.post_mortem;
  const bool text = prints_text(options.json);
  if (text) {
    print_text(concat("step ", post_mortem.step, " of rank ", post_mortem.rank, " of ",
                      post_mortem.num_ranks, ", ", name(post_mortem.io), " on ", post_mortem.device,
                      "\n"));
  }
  TrainConfig train;
  train.backend = options.backend;
  const BackendChoice choice = choose_backend(train, world);
  Reference reference{.figures = in_fp32(in, in.weights, world), .with_errors = {}};
  const auto shape = [](const TensorFigures& figures) {
    return std::pair(figures.name, figures.elements);
  };
  if (!std::ranges::equal(post_mortem.figures, reference.figures, {}, shape, shape)) {
    fail(ExitCode::kData, options.path, ": replay.figures has ", post_mortem.figures.size(),
         " tensors, want the ", reference.figures.size(),
         " of its model in order; another version of this program wrote it, or it is damaged.");
  }
  std::vector<std::pair<std::string, Replayed>> computed{
      {"the run",
       {.device = post_mortem.device,
        .io = post_mortem.io,
        .fp8 = has_fp8_gemms(post_mortem.config.train),
        .figures = post_mortem.figures}}};
  if (choice.kind == BackendChoice::Kind::kCuda) {
    computed.emplace_back("run again", replay_on(in, in.weights, choice, world));
  }
  ReportJson report{{"step", post_mortem.step}, {"rank", post_mortem.rank}};
  ReportJson findings = ReportJson::array();
  ExitCode exit_code = ExitCode::kSuccess;
  double rounding_before = 0;
  for (const auto& [who, replayed] : computed) {
    const double rounding = rounding_error(replayed.io, replayed.fp8, most_terms(post_mortem));
    if (rounding != rounding_before) {
      reference.with_errors = in_fp32(in, with_rounding_errors(in.weights, rounding), world);
      rounding_before = rounding;
    }
    const auto finding = first_finding(replayed.figures, reference, replayed.io, rounding);
    if (finding) exit_code = ExitCode::kNumeric;
    ReportJson entry{{"computed_by", who}, {"device", replayed.device}};
    entry["tensor"] = finding ? ReportJson(finding->tensor) : ReportJson();
    entry["text"] = finding ? finding->text : "";
    findings.push_back(entry);
    if (!text) continue;
    print_text(concat(
        who, " (", replayed.device, "): ",
        finding ? finding->tensor + ": " + finding->text : nothing_wrong_text(reference, rounding),
        "\n"));
  }
  if (text && exit_code == ExitCode::kSuccess) {
    print_text(
        "nothing wrong was found in this step; what stopped the run may lie some steps before "
        "it\n");
  }
  report["findings"] = findings;
  write_json_report(options.json, "replay", exit_code, report);
  return static_cast<int>(exit_code);
}

}  // namespace

void add_replay_command(CLI::App& program, Chosen& chosen) {
  CLI::App& replay = add_command(
      program, chosen,
      {.name = "replay",
       .description =
           "Runs the last step of a run that ended with exit code 7 again, in fp32 on the CPU and, "
           "where there is a GPU, there in the run's precision, and names the first activation or "
           "gradient that is not finite or differs from fp32 by more than roundings explain. Exit "
           "code 7 where there is one.",
       .examples = {"bertha replay runs/latest/post_mortem.rank_0000.json",
                    "bertha replay runs/latest/post_mortem.rank_0003.json --backend cpu",
                    "bertha replay runs/latest/post_mortem.rank_0000.json --json replay.json"}});
  const auto options = std::make_shared<ReplayOptions>();
  add_text(replay, "post_mortem", options->path, "FILE",
           "post_mortem.rank_NNNN.json of a run folder")
      .required();
  add_word(replay, "--backend", options->backend, {"auto", "cpu", "cuda"},
           "cpu leaves the GPU out, cuda wants one");
  add_json(replay, options->json);
  set_action(replay, chosen,
             [options](CommandContext& context) { return run_replay(*options, *context.world); });
}

}  // namespace bertha

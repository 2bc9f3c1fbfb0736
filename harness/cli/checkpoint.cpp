#include "harness/checkpoint/checkpoint.h"

#include <filesystem>
#include <functional>
#include <optional>

#include "data/files/text_file.h"
#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/safetensors.h"
#include "harness/cli/checkpoint_commands.h"
#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/config/load.h"
#include "harness/report/report.h"
#include "harness/report/run_folder.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/joined.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

struct CheckpointOptions {
  std::string path;
  std::string json;
  bool tensors = false;
};

void add_state(const TrainingState& state, Report& report) {
  report.row("step", "{}", figure("state/step", state.step, grouped_text));
  report.row("samples", "{}", figure("state/samples", state.samples_trained, grouped_text));
  report.row("seed", "{}", figure("state/seed", state.seed));
  report.row("skipped", "{}",
             figure("state/skipped_steps", state.lamb.skipped_steps, counted("update")));
  report.row("trained for", "{}",
             figure("state/training_seconds", state.training_seconds, duration_text));
  report.put("state/evaluations", ReportJson::array());
  for (size_t i = 0; i < state.evals.size(); ++i) {
    const std::string path = fmt::format("state/evaluations/{}/", i);
    const EvalPoint& eval = state.evals[i];
    report.row("evaluation", "step {}  samples {}  accuracy {:.4f}  loss {:.4f}",
               figure(path + "step", eval.step, grouped_text),
               figure(path + "samples", eval.samples, grouped_text),
               figure(path + "mlm_accuracy", eval.mlm_accuracy),
               figure(path + "mlm_loss", eval.mlm_loss));
  }
}

void add_weights(const SafeTensorsHeader& header, bool shows_tensors, Report& report) {
  int64_t elements = 0;
  int64_t bytes = 0;
  ReportJson tensors = ReportJson::object();
  std::string lines;
  for (const auto& [name, tensor] : header.tensors) {
    elements += tensor.elements();
    bytes += tensor.end_byte - tensor.begin_byte;
    tensors[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}};
    lines += fmt::format("  {} {} [{}]\n", tensor.dtype, name, joined(tensor.shape, ", "));
  }
  report.row("weights", "{} elements in {}, {}", grouped_text(elements),
             counted_text(std::ssize(header.tensors), "tensor"), bytes_text(bytes));
  if (shows_tensors) report.table(lines);
  report.put("tensors", tensors);
}

using NewestIn = std::function<std::optional<std::string>(const std::string&)>;

std::string find_checkpoint(const std::string& path, const NewestIn& newest_in) {
  const fs::path folder(path);
  if (!fs::is_directory(folder)) {
    fail(ExitCode::kData, path, ": no such folder; name a checkpoint or a run folder");
  }
  if (fs::exists(folder / "model.safetensors")) return path;
  for (const fs::path& candidate : {folder, folder / "ckpt"}) {
    if (!fs::is_directory(candidate)) continue;
    if (const auto newest = newest_in(candidate.string())) return *newest;
  }
  fail(ExitCode::kData, path, ": no complete checkpoint in this folder; name one with a DONE file");
}

std::optional<std::string> newest_complete(const std::string& folder) {
  std::vector<std::string> paths = list_checkpoints(folder);
  std::erase_if(paths, [](const std::string& path) { return !is_complete(path); });
  return paths.empty() ? std::nullopt : std::optional(paths.back());
}

}  // namespace

std::string checkpoint_at(const std::string& path) {
  return find_checkpoint(path, newest_checkpoint);
}

std::string checkpoint_to_check(const std::string& path) {
  return find_checkpoint(path, newest_complete);
}

namespace {

/// checkpoint.keep_every_steps of the run that saved there; 0 if unknown.
int64_t kept_every_steps(const fs::path& run_dir) {
  const std::string config = newest_config(run_dir.string());
  if (config.empty()) return 0;
  return config_from_yaml(read_text_file(config), config).checkpoint.keep_every_steps;
}

/// Lists all complete checkpoints of a folder, and why each is kept.
void add_folder(const std::string& folder, const std::string& newest, const TrainingState& state,
                Report& report) {
  const int64_t every_steps = kept_every_steps(fs::path(folder).parent_path());
  const std::string best = best_checkpoint(folder, state.evals);
  report.line("in {}", folder);
  for (const std::string& path : list_checkpoints(folder)) {
    if (!is_complete(path)) continue;
    const int64_t step = step_of_checkpoint(path);
    std::string line = "  " + fs::path(path).filename().string();
    for (const EvalPoint& eval : state.evals) {
      if (eval.step == step) line += fmt::format("  accuracy {:.4f}", eval.mlm_accuracy);
    }
    if (path == best) line += "  best";
    if (every_steps > 0 && step % every_steps == 0) line += "  kept for good";
    if (path == newest) line += "  newest";
    report.line("{}", line);
  }
}

int show(const CheckpointOptions& options, const std::string& path) {
  const fs::path state_path = fs::path(path) / "state.json";
  std::optional<TrainingState> state;
  if (fs::exists(state_path)) {
    verify_folder(path);
    state = training_state_from_json(read_text_file(state_path.string()), state_path.string());
  }
  const SafeTensorsHeader header =
      read_safetensors_header((fs::path(path) / "model.safetensors").string());
  Report report(13, 0);
  if (state && path != options.path) {
    add_folder(fs::path(path).parent_path().string(), path, *state, report);
  }
  report.line("{}", figure("path", path));
  report.put("state", nullptr);
  if (state) add_state(*state, report);
  add_weights(header, options.tensors, report);
  if (state) report.line("all files have the size and hash that DONE lists");
  write_report(report, options.json, "checkpoint show", ExitCode::kSuccess);
  return 0;
}

int run_show(const CheckpointOptions& options) {
  return with_checkpoint(options.path, checkpoint_to_check,
                         [&](const std::string& found) { return show(options, found); });
}

}  // namespace

void add_checkpoint_command(CLI::App& program, Chosen& chosen) {
  CLI::App& checkpoint =
      add_command(program, chosen,
                  {.name = "checkpoint",
                   .description = "Shows, verifies and converts checkpoints.",
                   .examples = {"bertha checkpoint show runs/latest",
                                "bertha checkpoint verify runs/latest/ckpt/step_00001000",
                                "bertha checkpoint convert model.ckpt-28252 --output start",
                                "bertha checkpoint export runs/latest --output my_bert"}});
  CLI::App& show = add_command(
      checkpoint, chosen,
      {.name = "show",
       .description =
           "Shows what a checkpoint contains: step, evaluations, weights; for a run folder also "
           "which checkpoints it contains and why each is kept. Checks every file against DONE; "
           "exit code 4 if one differs.",
       .examples = {"bertha checkpoint show runs/latest",
                    "bertha checkpoint show runs/latest/ckpt/step_00001000",
                    "bertha checkpoint show runs/latest --tensors"}});
  CheckpointOptions& options = set_action<CheckpointOptions>(show, chosen, run_show);
  add_text(show, "path", options.path, "PATH", "Checkpoint, folder of checkpoints, or run folder")
      .required();
  add_flag(show, "--tensors", options.tensors, "List every tensor");
  add_json(show, options.json);
  add_checkpoint_verify(checkpoint, chosen);
  add_checkpoint_convert(checkpoint, chosen);
  add_checkpoint_export(checkpoint, chosen);
  add_checkpoint_average(checkpoint, chosen);
}

}  // namespace bertha

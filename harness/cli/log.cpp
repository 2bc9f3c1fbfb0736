#include <filesystem>
#include <iostream>
#include <memory>

#include "harness/cli/choice.h"
#include "harness/cli/command.h"
#include "harness/cli/option_checks.h"
#include "harness/report/mlperf_check.h"
#include "harness/report/plots.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

struct LogOptions {
  std::string path;
  MlperfCheckOptions rules;
  std::string output;
};

// A run folder stands for the file of it that the command reads.
std::string file_of(const std::string& path, const std::string& inside) {
  return fs::is_directory(path) ? (fs::path(path) / inside).string() : path;
}

int run_check(const LogOptions& options) {
  const std::string path = file_of(options.path, "mllog/result_0.txt");
  const MlperfCheckResult result = check_mlperf_log(path, options.rules);
  std::cout << check_report(path, result, options.rules.rule_set);
  return static_cast<int>(result.passed() ? ExitCode::kSuccess : ExitCode::kCompliance);
}

int run_plot(const LogOptions& options) {
  const std::string metrics = file_of(options.path, "metrics.jsonl");
  const std::string beside = (fs::path(metrics).parent_path() / "plots").string();
  const std::string output = options.output.empty() ? beside : options.output;
  plot_metrics(metrics, output);
  std::cout << "written: " << output << "/*.svg\n";
  return 0;
}

void add_check(CLI::App& log, Chosen& chosen) {
  CLI::App& check = add_command(
      log, chosen,
      {.name = "check",
       .description =
           "Checks an MLLOG file against the rules of MLPerf BERT; exit code 8 when one is broken.",
       .examples = {"bertha log check runs/latest",
                    "bertha log check runs/latest/mllog/result_0.txt",
                    "bertha log check runs/latest --ruleset 4.0.0",
                    "bertha log check runs/latest --target-accuracy 0.2"}});
  const auto options = std::make_shared<LogOptions>();
  check.add_option("path", options->path, "Run folder, or result file")
      ->required()
      ->type_name("PATH");
  add_choice<RuleSet>(check, "--ruleset", options->rules.rule_set,
                      {{"4.0.0", RuleSet::k4_0_0}, {"5.0.0", RuleSet::k5_0_0}},
                      "Rule set to check by (default 5.0.0, the last that has BERT)");
  check
      .add_option("--target-accuracy", options->rules.target_accuracy,
                  "Accuracy that some evaluation has to reach (default 0.720)")
      ->check(fraction())
      ->type_name("X");
  check.callback([&chosen, options] {
    chosen.action = [options](CommandContext&) { return run_check(*options); };
  });
}

void add_plot(CLI::App& log, Chosen& chosen) {
  CLI::App& plot = add_command(
      log, chosen,
      {.name = "plot",
       .description = "Draws the curves of a run: loss, accuracy, throughput, learning rate.",
       .examples = {"bertha log plot runs/latest", "bertha log plot runs/latest --output plots",
                    "bertha log plot runs/latest/metrics.jsonl --output /tmp/plots"}});
  const auto options = std::make_shared<LogOptions>();
  plot.add_option("path", options->path, "Run folder, or metrics.jsonl")
      ->required()
      ->type_name("PATH");
  plot.add_option("-o,--output", options->output, "Folder to write (default: plots/ beside it)")
      ->type_name("DIR");
  plot.callback([&chosen, options] {
    chosen.action = [options](CommandContext&) { return run_plot(*options); };
  });
}

}  // namespace

void add_log_command(CLI::App& program, Chosen& chosen) {
  CLI::App& log =
      add_command(program, chosen,
                  {.name = "log",
                   .description = "Checks and draws the logs of runs.",
                   .examples = {"bertha log check runs/latest", "bertha log plot runs/latest",
                                "bertha log check runs/latest/mllog/result_0.txt"}});
  add_check(log, chosen);
  add_plot(log, chosen);
}

}  // namespace bertha

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "harness/cli/command.h"
#include "harness/cli/config_diff.h"
#include "harness/cli/log_sink.h"
#include "harness/cli/options.h"
#include "harness/report/json_report.h"
#include "harness/report/metrics.h"
#include "harness/report/plots.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/figures.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

struct CompareOptions {
  std::vector<std::string> runs;
  std::string json;
  std::string chart;
};

std::optional<double> median_speed(const Metrics& run) {
  std::vector<double> speeds;
  for (const StepRecord& step : run.steps) speeds.push_back(step.seqs_per_second);
  if (speeds.empty()) return std::nullopt;
  return percentile(speeds, 0.5);
}

// Training and evaluations from the first step on, without the time between two starts.
std::optional<double> seconds_until_target(const Metrics& metrics) {
  const RunIdentity& run = metrics.run;
  if (run.target_accuracy <= 0) return std::nullopt;
  double seconds = 0;
  int64_t samples = run.first_step * run.global_batch_seqs;
  for (const EvalRecord& eval : metrics.evals) {
    seconds += static_cast<double>(eval.samples - samples) / eval.seqs_per_second_since_last;
    seconds += eval.seconds;
    samples = eval.samples;
    if (eval.mlm_accuracy >= run.target_accuracy) return seconds;
  }
  return std::nullopt;
}

std::string time_to_target(const Metrics& metrics) {
  if (metrics.run.target_accuracy <= 0) return "no target";
  const auto seconds = seconds_until_target(metrics);
  return seconds ? duration_text(*seconds) : "missed";
}

TextTable results(const std::vector<Metrics>& runs) {
  TextTable rows{{"model"},  {"parameters"}, {"samples"},  {"sequences/s"},
                 {"target"}, {"time to it"}, {"accuracy"}, {"eval loss"}};
  for (const Metrics& run : runs) {
    const EvalRecord* const last = run.evals.empty() ? nullptr : &run.evals.back();
    const int64_t samples = run.steps.empty() ? 0 : run.steps.back().samples;
    const double target = run.run.target_accuracy;
    const std::string cells[] = {run.run.model,
                                 grouped_text(run.run.parameters),
                                 grouped_text(samples),
                                 median_speed(run) ? scaled_text(*median_speed(run)) : "no step",
                                 target > 0 ? fixed_text(target, 4) : "none",
                                 time_to_target(run),
                                 last ? fixed_text(last->mlm_accuracy, 4) : "never evaluated",
                                 last ? fixed_text(last->mlm_loss, 4) : "never evaluated"};
    for (size_t i = 0; i < rows.size(); ++i) rows[i].push_back(cells[i]);
  }
  return rows;
}

// What results() says of one run.
ReportJson result_json(const std::string& folder, const Metrics& run) {
  const EvalRecord* const last = run.evals.empty() ? nullptr : &run.evals.back();
  return {{"run_dir", folder},
          {"model", run.run.model},
          {"parameters", run.run.parameters},
          {"samples", run.steps.empty() ? 0 : run.steps.back().samples},
          {"seqs_per_second", or_null(median_speed(run))},
          {"target_accuracy", run.run.target_accuracy},
          {"seconds_to_target", or_null(seconds_until_target(run))},
          {"mlm_accuracy", last ? ReportJson(last->mlm_accuracy) : ReportJson()},
          {"mlm_loss", last ? ReportJson(last->mlm_loss) : ReportJson()}};
}

// Without the folders that all have in common: the legend of a chart is one line.
std::vector<std::string> short_names(std::vector<std::string> names) {
  for (;;) {
    const std::string first = names.front().substr(0, names.front().find('/') + 1);
    const bool common = std::ranges::all_of(names, [&](const std::string& name) {
      return !first.empty() && name.starts_with(first) && name.size() > first.size();
    });
    if (!common) return names;
    for (std::string& name : names) name.erase(0, first.size());
  }
}

int run_compare(const CompareOptions& options) {
  if (!options.chart.empty() && !options.chart.ends_with(".svg")) {
    fail(ExitCode::kUsage, "--output is ", options.chart,
         ", want a name that ends in .svg: the chart is written as SVG");
  }
  std::vector<Metrics> runs;
  std::vector<LoadedConfig> configs;
  for (const std::string& folder : options.runs) {
    if (!fs::is_directory(folder)) fail(ExitCode::kData, folder, ": no such folder; name a run's");
    runs.push_back(read_metrics((fs::path(folder) / "metrics.jsonl").string()));
    configs.push_back(config_of(folder));
  }
  TextTable table{options.runs};
  table.front().insert(table.front().begin(), "");
  for (const TextTable& part : {results(runs), differing_keys(configs, false)}) {
    table.insert(table.end(), part.begin(), part.end());
  }
  if (prints_text(options.json)) print_table(table);
  if (!options.chart.empty()) {
    plot_accuracies(runs, short_names(options.runs), options.chart);
    if (prints_text(options.json)) std::cout << "written: " << options.chart << '\n';
  }
  ReportJson report{{"runs", ReportJson::array()}, {"differing_keys", ReportJson::object()}};
  for (size_t i = 0; i < runs.size(); ++i) {
    report["runs"].push_back(result_json(options.runs[i], runs[i]));
  }
  for (const std::vector<std::string>& row : differing_keys(configs, false)) {
    report["differing_keys"][row.front()] = std::vector(row.begin() + 1, row.end());
  }
  write_json_report(options.json, "compare", ExitCode::kSuccess, report);
  return 0;
}

}  // namespace

void add_compare_command(CLI::App& program, Chosen& chosen) {
  CLI::App& compare = add_command(
      program, chosen,
      {.name = "compare",
       .description = "Puts runs side by side: what they reached, their speed, and the keys of "
                      "the configuration that differ. Speed is that of the median step; the time "
                      "to the target counts training and evaluations.",
       .examples = {"bertha compare runs/quickstart runs/other",
                    "bertha compare runs/a runs/b --output accuracy.svg",
                    "bertha compare runs/seed-0 runs/seed-1 runs/seed-2"}});
  CompareOptions& options = set_action<CompareOptions>(compare, chosen, run_compare);
  add_text(compare, "run", options.runs, "DIR", "Run folders").required();
  add_text(compare, "-o,--output", options.chart, "FILE",
           "FILE.svg to write, with the accuracy of all runs by samples");
  add_json(compare, options.json);
}

}  // namespace bertha

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "harness/cli/command.h"
#include "harness/cli/log_sink.h"
#include "harness/cli/options.h"
#include "harness/cli/rule_options.h"
#include "harness/mlperf/curve_doctor.h"
#include "harness/mlperf/log_check.h"
#include "harness/mlperf/published_curves.h"
#include "harness/mlperf/submission.h"
#include "harness/report/json_report.h"
#include "harness/report/metrics.h"
#include "harness/report/plots.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

namespace fs = std::filesystem;

struct CheckOptions {
  std::vector<std::string> paths;
  std::string json;
  SubmissionOptions submission;
};

struct PlotOptions {
  std::string path;
  std::string output;
  PublishedBand published = PublishedBand::kAuto;
};

// A run folder stands for the file of it that the command reads.
std::string file_of(const std::string& path, const std::string& inside) {
  return fs::is_directory(path) ? (fs::path(path) / inside).string() : path;
}

bool is_result_file(const fs::path& path) {
  const std::string name = path.filename().string();
  const bool of_a_resume = name.find(".resume") != std::string::npos;
  return name.starts_with("result_") && name.ends_with(".txt") && !of_a_resume;
}

constexpr const char* kLogOfARun = "mllog/result_0.txt";

[[noreturn]] void refuse_folder(const std::string& path) {
  std::vector<std::string> runs;
  for (const auto& entry : fs::directory_iterator(path)) {
    std::error_code unknown;
    const bool is_run = fs::exists(entry.path() / kLogOfARun, unknown);
    if (is_run && !entry.is_symlink()) runs.push_back(entry.path().string());  // no runs/latest
  }
  if (runs.empty()) {
    fail(ExitCode::kData, path, ": is a folder with neither ", kLogOfARun,
         ", as a run folder has, nor result_*.txt; name a run folder or a log");
  }
  fail(ExitCode::kData, path, ": is a folder with ", counted_text(std::ssize(runs), "run folder"),
       " in it, and is none itself; name each run to check, such as ", std::ranges::min(runs));
}

// A folder of result files stands for all of them, a run folder for the one in it.
std::vector<std::string> result_files(const std::string& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (is_result_file(entry.path())) files.push_back(entry.path().string());
  }
  std::ranges::sort(files);
  if (!files.empty()) return files;
  const fs::path log = fs::path(path) / kLogOfARun;
  if (!fs::exists(log)) refuse_folder(path);
  return {log.string()};
}

// What metrics.jsonl says about the curve, beside a run folder or the result file in one.
std::vector<CurveRemark> curve_remarks_of(const std::string& path) {
  const fs::path given = fs::absolute(path);
  for (const fs::path& folder : {given, given.parent_path().parent_path()}) {
    const fs::path metrics = folder / "metrics.jsonl";
    std::error_code missing;
    if (fs::file_size(metrics, missing) > 0 && !missing) {
      return examine_curve(read_metrics(metrics.string()));
    }
  }
  return {};
}

ReportJson findings_json(const std::string& path, const MlperfCheckResult& result) {
  ReportJson findings = ReportJson::array();
  for (const LogFinding& finding : result.findings) {
    findings.push_back({{"level", finding.level == FindingLevel::kError ? "error" : "warning"},
                        {"line", finding.line},
                        {"text", finding.text}});
  }
  return {{"path", path},
          {"passed", result.passed()},
          {"records", result.records},
          {"reached_target", result.reached_target},
          {"findings", findings}};
}

// One log, or several as a submission.
ReportJson submission_json(const Submission& submission) {
  ReportJson files = ReportJson::array();
  for (const ResultFile& file : submission.files) {
    ReportJson one = findings_json(file.path, file.check);
    one["best_accuracy"] = file.best_accuracy;
    one["samples_to_target"] = or_null(file.samples);
    one["minutes"] = file.minutes;
    files.push_back(one);
  }
  return {{"errors", submission.errors},
          {"score_minutes", or_null(submission.score_minutes)},
          {"logs", files}};
}

int run_check(const CheckOptions& options) {
  std::vector<std::string> files;
  for (const std::string& path : options.paths) {
    const std::vector<std::string> found = result_files(path);
    files.insert(files.end(), found.begin(), found.end());
  }
  for (const std::string& file : files) {
    if (std::ranges::count(files, file) == 1) continue;
    fail(ExitCode::kUsage, file, " is given twice; name every log once");
  }
  const MlperfCheckOptions& rules = options.submission.rules;
  bool passed = false;
  std::string text;
  ReportJson report{{"rule_set", name_of(rules.rule_set)}};
  if (files.size() == 1) {
    const MlperfCheckResult result = check_mlperf_log(files[0], rules);
    text = check_report(files[0], result, rules.rule_set);
    report["logs"] = ReportJson::array({findings_json(files[0], result)});
    passed = result.passed();
  } else {
    const Submission submission = check_submission(files, options.submission);
    text = submission_report(submission, rules.rule_set);
    report.update(submission_json(submission));
    passed = submission.passed();
  }
  report["curve_remarks"] = ReportJson::array();
  for (const std::string& path : options.paths) {
    const std::vector<CurveRemark> remarks = curve_remarks_of(path);
    text += curve_report(path, remarks);
    for (const CurveRemark& remark : remarks) {
      report["curve_remarks"].push_back(
          {{"path", path}, {"shape", remark.shape}, {"text", remark.text}});
    }
  }
  const ExitCode code = passed ? ExitCode::kSuccess : ExitCode::kCompliance;
  if (prints_text(options.json)) print_text(text);
  write_json_report(options.json, "log check", code, report);
  return static_cast<int>(code);
}

int run_plot(const PlotOptions& options) {
  const std::string path = file_of(options.path, "metrics.jsonl");
  const std::string beside = (fs::path(path).parent_path() / "plots").string();
  const std::string output = options.output.empty() ? beside : options.output;
  const Metrics metrics = read_metrics(path);
  plot_metrics(metrics, output, published_band(metrics.run, options.published));
  print_text(concat("written: ", output, "/*.svg\n", curve_report(path, examine_curve(metrics))));
  return 0;
}

void add_check(CLI::App& log, Chosen& chosen) {
  CLI::App& check = add_command(
      log, chosen,
      {.name = "check",
       .description =
           "Checks MLLOG files against the rules of MLPerf BERT; exit code 8 when one is broken.\n"
           "Several files are checked as a submission: ten runs, seeds, convergence (RCP), score.",
       .examples = {"bertha log check runs/latest", "bertha log check runs/latest --ruleset 4.0.0",
                    "bertha log check runs/seed-0 runs/seed-1 runs/seed-2",
                    "bertha log check results/my_system/bert",
                    "bertha log check runs/latest --target-accuracy 0.2"}});
  CheckOptions& options = set_action<CheckOptions>(check, chosen, run_check);
  add_text(check, "path", options.paths, "PATH",
           "Run folders, result files or folders of result files")
      .required();
  add_rule_options(check, options.submission.rules);
  add_choice<SamplesFrom>(
      check, "--samples-from", options.submission.samples_from,
      {{"evaluation", SamplesFrom::kEvaluation}, {"train_samples", SamplesFrom::kTrainSamples}},
      "Where the samples to the target stand (default evaluation: its epoch_num)");
  add_json(check, options.json);
}

void add_plot(CLI::App& log, Chosen& chosen) {
  CLI::App& plot = add_command(
      log, chosen,
      {.name = "plot",
       .description = "Draws the curves of a run: loss, accuracy, throughput, learning rate.",
       .examples = {"bertha log plot runs/latest", "bertha log plot runs/latest --output plots",
                    "bertha log plot runs/latest/metrics.jsonl --output /tmp/plots"}});
  PlotOptions& options = set_action<PlotOptions>(plot, chosen, run_plot);
  add_text(plot, "path", options.path, "PATH", "Run folder, or metrics.jsonl").required();
  add_text(plot, "-o,--output", options.output, "DIR",
           "Folder to write (default: plots/ beside it)");
  add_choice<PublishedBand>(plot, "--published", options.published,
                            {{"auto", PublishedBand::kAuto},
                             {"always", PublishedBand::kAlways},
                             {"never", PublishedBand::kNever}},
                            "Draw accuracy by samples over the published runs of the benchmark "
                            "(default auto: for BERT-large with its target)");
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

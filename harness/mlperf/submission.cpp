#include "harness/mlperf/submission.h"

#include <algorithm>
#include <limits>
#include <map>

#include "data/files/text_file.h"
#include "harness/mlperf/key_rules.h"
#include "harness/mlperf/log_parser.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr size_t kRuns = 10;
constexpr int64_t kMostBroken = 1;  // it counts as the slowest run
constexpr double kTarget = 0.720;

std::string text_or_empty(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

std::optional<double> samples_of(const MlperfRecord& record, SamplesFrom from) {
  if (from == SamplesFrom::kTrainSamples) {
    if (record.key != "train_samples" || !record.value.is_number()) return std::nullopt;
    return record.value.get<double>();
  }
  if (record.key != "eval_accuracy" || !record.metadata.is_object() ||
      !record.metadata.contains("epoch_num") || !record.metadata["epoch_num"].is_number()) {
    return std::nullopt;
  }
  return record.metadata["epoch_num"].get<double>();
}

void add_seed(const MlperfRecord& record, ResultFile& file) {
  const auto place = seed_place(record);
  file.seeds_readable = file.seeds_readable && place.has_value();
  if (!place) return;
  const auto& [source, line, seed] = *place;
  file.seeds.push_back(concat(seed, " of ", source, ":", line));
}

ResultFile read_result_file(const std::string& path, const SubmissionOptions& options) {
  const MlperfRecords parsed = parse_mlperf_text(read_text_file(path));
  MlperfCheckOptions rules = options.rules;
  rules.check_seeds = false;
  ResultFile file{.path = path, .check = check_mlperf_records(parsed, rules)};
  std::optional<double> samples;
  double start_ms = 0;
  file.seeds_readable = std::ranges::none_of(parsed.findings, [](const LogFinding& finding) {
    return finding.level == FindingLevel::kError;
  });
  for (const MlperfRecord& record : parsed.records) {
    if (record.key == "submission_division") file.division = text_or_empty(record.value);
    if (record.key == "global_batch_size") file.batch_seqs = number_or_nan(record.value);
    if (record.key == "run_start") start_ms = record.time_ms;
    if (const auto now = samples_of(record, options.samples_from)) samples = now;
    if (record.key == "eval_accuracy" && record.value.is_number()) {
      file.best_accuracy = std::max(file.best_accuracy, record.value.get<double>());
    }
    if (record.key == "seed") add_seed(record, file);
    if (record.key == "run_stop" && start_ms > 0) {
      file.minutes = (record.time_ms - start_ms) / 60e3;
      if (record.metadata.is_object() && record.metadata.contains("status")) {
        file.status = text_or_empty(record.metadata["status"]);
      }
      file.samples = file.status == "success" ? samples : std::nullopt;
    }
  }
  return file;
}

int64_t broken_files(const Submission& submission) {
  return std::ranges::count_if(submission.files,
                               [](const ResultFile& file) { return !file.check.passed(); });
}

void check_files(Submission& submission) {
  if (submission.files.size() != kRuns) {
    submission.errors.push_back(
        concat(submission.files.size(), " result files, want exactly ", kRuns));
  }
  if (const int64_t broken = broken_files(submission); broken > kMostBroken) {
    submission.errors.push_back(
        concat(broken, " result files do not comply, allowed is ", kMostBroken));
  }
}

/// One log of the open division would spare all others what is asked of the closed one.
void check_divisions(Submission& submission) {
  std::string first;
  for (const ResultFile& file : submission.files) {
    if (first.empty()) first = file.division;
    if (file.division.empty() || file.division == first) continue;
    submission.errors.push_back(concat(file.path, ": submission_division is ", file.division,
                                       ", want ", first, " as in the files before"));
  }
}

/// One run may miss the target, and its log then does not comply. One that says it reached the
/// target is believed by the test of convergence, so that it has to show it.
void check_successes(Submission& submission) {
  for (const ResultFile& file : submission.files) {
    if (file.status != "success" || file.check.reached_target) continue;
    submission.errors.push_back(file.path +
                                ": run_stop says success, but no eval_accuracy before it reaches "
                                "the target");
  }
}

void check_seeds(Submission& submission) {
  std::map<std::string, std::string> first_file;
  for (const ResultFile& file : submission.files) {
    if (!file.seeds_readable) {
      submission.errors.push_back(
          file.path + ": has a line that cannot be read, so its seeds count as unknown");
      continue;
    }
    if (file.seeds.empty()) submission.errors.push_back(file.path + ": logs no seed");
    for (const std::string& seed : file.seeds) {
      const auto [known, is_new] = first_file.emplace(seed, file.path);
      if (is_new) continue;
      submission.errors.push_back(concat(file.path, ": has the seed ", seed, ", as ", known->second,
                                         " has; every run needs its own"));
    }
  }
}

void check_convergence(Submission& submission) {
  const double batch_seqs = submission.files.front().batch_seqs;
  std::vector<std::optional<double>> samples;
  for (const ResultFile& file : submission.files) {
    samples.push_back(file.samples);
    if (file.batch_seqs == batch_seqs && batch_seqs > 0) continue;
    submission.errors.push_back(concat(file.path, ": global_batch_size ", file.batch_seqs,
                                       ", want one above 0 and the same in all files"));
    return;
  }
  submission.convergence = test_convergence(batch_seqs, samples);
  if (!submission.convergence->passed()) {
    submission.errors.push_back("RCP " + verdict_text(*submission.convergence));
  }
}

/// Only runs that pass as too fast by chance are scaled.
double score_factor(const Submission& submission) {
  const bool scaled = submission.convergence && submission.convergence->passed();
  return scaled ? submission.convergence->score_factor : 1;
}

/// Mean of the minutes without the fastest run and the slowest, which is the broken one if any is.
std::optional<double> score_minutes(const Submission& submission) {
  if (broken_files(submission) > kMostBroken) return std::nullopt;
  std::vector<double> minutes;
  for (const ResultFile& file : submission.files) {
    minutes.push_back(file.check.passed() ? file.minutes : std::numeric_limits<double>::max());
  }
  const std::optional<double> mean = olympic_mean(minutes);
  if (!mean) return std::nullopt;
  return *mean * score_factor(submission);
}

std::string run_table(const Submission& submission) {
  TextTable table{{"run", "complies", "status", "samples", "best accuracy", "minutes"}};
  for (const ResultFile& file : submission.files) {
    table.push_back({file.path, file.check.passed() ? "yes" : "no",
                     file.status.empty() ? "-" : file.status,
                     file.samples ? fixed_text(*file.samples, 0) : "-",
                     fixed_text(file.best_accuracy, 4), fixed_text(file.minutes, 3)});
  }
  return aligned_text(table);
}

}  // namespace

Submission check_submission(const std::vector<std::string>& paths,
                            const SubmissionOptions& options) {
  BERTHA_CHECK(!paths.empty(), "no result file");
  Submission submission;
  for (const std::string& path : paths) {
    submission.files.push_back(read_result_file(path, options));
  }
  check_files(submission);
  check_divisions(submission);
  check_successes(submission);
  const bool closed = std::ranges::none_of(
      submission.files, [](const ResultFile& file) { return file.division == "open"; });
  if (closed) check_seeds(submission);
  if (closed && options.rules.target_accuracy == kTarget) check_convergence(submission);
  submission.score_minutes = score_minutes(submission);
  return submission;
}

std::string submission_report(const Submission& submission, RuleSet rule_set) {
  std::string text;
  for (const ResultFile& file : submission.files) text += findings_text(file.path, file.check);
  text += run_table(submission);
  text +=
      concat("RCP      ",
             submission.convergence
                 ? verdict_text(*submission.convergence)
                 : "not tested: that is for the closed division, one batch size and target 0.720",
             "\n");
  text += "score    ";
  if (submission.score_minutes) {
    text += concat(fixed_text(*submission.score_minutes, 3), " minutes (olympic mean, times ",
                   fixed_text(score_factor(submission), 4), ")\n");
  } else {
    text += "none\n";
  }
  for (const std::string& error : submission.errors) text += "error: " + error + "\n";
  return text + concat("verdict  ", submission.files.size(),
                       " result files: ", submission.passed() ? "comply" : "do not comply",
                       " with rule set ", name_of(rule_set), " for BERT\n");
}

}  // namespace bertha

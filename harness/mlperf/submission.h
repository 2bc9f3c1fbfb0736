#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/mlperf/log_check.h"
#include "harness/mlperf/rcp.h"

namespace bertha {

/// What one result file says about its run.
struct ResultFile {
  std::string path = {};
  MlperfCheckResult check = {};
  std::string division = {};
  std::string status = {};             // of run_stop; "" = none
  double batch_seqs = -1;              // -1 = not said
  std::optional<double> samples = {};  // at the last evaluation before run_stop, when it converged
  double best_accuracy = 0;
  double minutes = 0;                   // from run_start to run_stop; 0 when one is missing
  std::vector<std::string> seeds = {};  // "4711 of file.cpp:12"
  bool seeds_readable = true;           // no line is torn, no seed lacks value or place
};

/// Where a run's samples to the target are read: with each accuracy, or once in train_samples.
enum class SamplesFrom { kEvaluation, kTrainSamples };

struct SubmissionOptions {
  MlperfCheckOptions rules = {};
  SamplesFrom samples_from = SamplesFrom::kEvaluation;
};

/// The result files of one system as a submission: ten runs that comply but for one, one division,
/// seeds that differ, samples to the target as the reference allows, and the score.
struct Submission {
  std::vector<ResultFile> files = {};
  std::vector<std::string> errors = {};  // over all files, one sentence each
  std::optional<ConvergenceTest> convergence =
      {};                                    // none in the open division or at another target
  std::optional<double> score_minutes = {};  // olympic mean, scaled as the reference demands

  bool passed() const { return errors.empty(); }
};

/// Checks result files together, as the benchmark's package checker does for a folder of them. A
/// run may miss the target, but not say success without an evaluation that reached it.
///
/// Errors    Error(kData) when a file cannot be read. What is wrong with the logs is no exception.
/// Source    github.com/mlcommons/logging, package_checker/{package_checker,seed_checker}.py,
///           result_summarizer/result_summarizer.py (score).
Submission check_submission(const std::vector<std::string>& paths,
                            const SubmissionOptions& options = {});

/// Findings, a table of the runs and the verdict; ends in a newline.
std::string submission_report(const Submission& submission, RuleSet rule_set);

}  // namespace bertha

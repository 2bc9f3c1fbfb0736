#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bertha {

struct MlperfRecords;  // log_parser.h

enum class FindingLevel { kWarning, kError };

/// What a rule has to say about a log.
struct LogFinding {
  FindingLevel level = FindingLevel::kError;
  int64_t line = 0;  // counted from 1; 0 = the file as a whole
  std::string text = {};
};

/// The newest rule sets that have BERT; 5.0.0 is the last of all.
enum class RuleSet { k4_0_0, k5_0_0 };
const char* name_of(RuleSet rule_set);

struct MlperfCheckOptions {
  RuleSet rule_set = RuleSet::k5_0_0;
  /// What some evaluation has to reach. The benchmark's is 0.720; small runs have their own.
  double target_accuracy = 0.720;
  /// Whether a log without a good seed is at fault by itself; over several logs seeds are looked at
  /// together.
  bool check_seeds = true;
};

struct MlperfCheckResult {
  int64_t records = 0;
  std::vector<LogFinding> findings = {};  // by line, those of the whole file last
  bool reached_target = false;            // in an evaluation before run_stop

  bool passed() const;
};

/// Checks a recorded log against the rules for BERT, closed or open division as the log says: every
/// line parses, keys occur as often as required, intervals come in order, the start-up limit holds,
/// the target was reached, a seed is there; evaluations that do not come as often as they should
/// are a warning. Passes what the official checkers of one log (of compliance and of seeds) pass,
/// and nothing else, but for what they do not look at: the clock must not be set back, run_start,
/// init_stop and run_stop must not be repeated, and the target must be reached before run_stop.
/// Further remarks are warnings. Independent of the code that writes logs.
///
/// Errors    Error(kData) when the file cannot be read. What is wrong with the log is no exception.
/// Source    github.com/mlcommons/logging, compliance_checker/mlp_compliance.py; the rules of keys
///           are in key_rules.h.
MlperfCheckResult check_mlperf_log(const std::string& path, const MlperfCheckOptions& options = {});
MlperfCheckResult check_mlperf_text(const std::string& text,
                                    const MlperfCheckOptions& options = {});
MlperfCheckResult check_mlperf_records(MlperfRecords records, const MlperfCheckOptions& options);

/// One line per finding: "FILE:12: error: ...".
std::string findings_text(const std::string& path, const MlperfCheckResult& result);
/// The findings and a verdict; ends in a newline.
std::string check_report(const std::string& path, const MlperfCheckResult& result,
                         RuleSet rule_set = RuleSet::k5_0_0);

}  // namespace bertha

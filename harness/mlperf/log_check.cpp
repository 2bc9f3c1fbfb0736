#include "harness/mlperf/log_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "data/files/text_file.h"
#include "harness/config/run_plan.h"
#include "harness/mlperf/key_rules.h"
#include "harness/mlperf/log_parser.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/plural.h"

namespace bertha {
namespace {

/// The division decides which rules count, wherever in the log it is.
Division division_of(const std::vector<MlperfRecord>& records) {
  for (const MlperfRecord& record : records) {
    if (record.key == "submission_division") {
      return record.value == "open" ? Division::kOpen : Division::kClosed;
    }
  }
  return Division::kClosed;
}

FindingLevel level_of(Demand demand) {
  return demand == Demand::kRequired ? FindingLevel::kError : FindingLevel::kWarning;
}

/// The largest that a batch can be, so that no damaged number overflows the rule.
constexpr double kMostBatchSeqs = 1 << 24;

struct Evaluations {
  int64_t batch_seqs = 0;       // 0 = not in the log
  std::vector<double> samples;  // trained before each evaluation, but for those before any training
};

Evaluations evaluations_of(const std::vector<MlperfRecord>& records) {
  Evaluations found;
  for (const MlperfRecord& record : records) {
    if (record.key == "global_batch_size") {
      const double batch = number_or_nan(record.value);
      if (batch >= 1 && batch <= kMostBatchSeqs) found.batch_seqs = static_cast<int64_t>(batch);
    }
    if (record.key != "eval_accuracy" || !record.metadata.is_object()) continue;
    const double samples = number_or_nan(record.metadata.value("epoch_num", nlohmann::json()));
    if (samples > 0) found.samples.push_back(samples);
  }
  return found;
}

/// What the evaluations of a log have against the benchmark's rule: the first one whose samples are
/// not those that eval_interval_samples() of the logged global batch wants. "" when there is none.
///
/// An evaluation may be a batch and 0.2 % away, for steps are whole and packed batches have no
/// fixed count of sequences; one before any training is free, and so is that at the end of a run.
///
/// Needs     eval_accuracy and global_batch_size records as key_rules() wants them; others are
///           skipped.
std::string eval_cadence_complaint(const std::vector<MlperfRecord>& records) {
  const Evaluations found = evaluations_of(records);
  if (found.batch_seqs == 0) return "";
  const auto batch = static_cast<double>(found.batch_seqs);
  const int64_t interval = eval_interval_samples(found.batch_seqs);
  for (size_t i = 0; i < found.samples.size(); ++i) {
    const double samples = found.samples[i];
    const int64_t wanted = interval * (static_cast<int64_t>(i) + 1);
    const double away = samples - static_cast<double>(wanted);
    if (std::abs(away) <= batch + samples / 500) continue;
    const bool at_the_end = i > 0 && i + 1 == found.samples.size() && away < 0;
    if (at_the_end) continue;
    return concat("eval_accuracy: evaluation ", i + 1, " comes after ", fixed_text(samples, 0),
                  " samples; with a global batch of ", found.batch_seqs, " the rule is every ",
                  interval, ", so after ", wanted);
  }
  return "";
}

/// Ranks on several machines may log to one file, with clocks that agree to a fraction of this.
constexpr double kClockSlackMs = 1000;

using RecordsByKey = std::map<std::string, std::vector<const MlperfRecord*>>;

class Checker {
 public:
  Checker(const MlperfCheckOptions& options, MlperfRecords all)
      : options_(options),
        all_(std::move(all)),
        division_(division_of(all_.records)),
        rules_(key_rules(options.rule_set, division_)) {
    if (!options.check_seeds) {
      std::erase_if(rules_, [](const KeyRule& rule) { return rule.key == std::string("seed"); });
    }
    for (const MlperfRecord& record : all_.records) by_key_[record.key].push_back(&record);
  }

  MlperfCheckResult run() {
    if (all_.records.empty()) add(FindingLevel::kError, 0, "no record of the benchmark's log");
    for (const MlperfRecord& record : all_.records) check_record(record);
    for (const KeyRule& rule : rules_) check_occurrence(rule);
    check_clock();
    check_target();
    check_cadence();
    auto& findings = all_.findings;
    std::stable_sort(findings.begin(), findings.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.line == 0, a.line) < std::tuple(b.line == 0, b.line);
    });
    return {.records = static_cast<int64_t>(all_.records.size()),
            .findings = std::move(findings),
            .reached_target = reached_target_};
  }

 private:
  void add(FindingLevel level, int64_t line, const std::string& text) {
    all_.findings.push_back({level, line, text});
  }

  void check_record(const MlperfRecord& record) {
    for (const KeyRule& rule : rules_) {
      if (record.key != rule.key || rule.check == nullptr) continue;
      const std::string complaint = rule.check(record, state_);
      if (complaint.empty()) continue;
      add(level_of(rule.demand), record.line,
          concat(record.key, ": ", complaint, "; found value ", record.value.dump(), ", metadata ",
                 record.metadata.dump()));
    }
  }

  void check_occurrence(const KeyRule& rule) {
    const auto& found = by_key_[rule.key];
    if (found.empty() && rule.occurs == Occurs::kOnceOrItsPartner) {
      if (by_key_[rule.partner].empty()) {
        add(FindingLevel::kError, 0, concat(rule.key, " or ", rule.partner, ": missing"));
      }
      return;
    }
    if (found.empty()) {
      add(level_of(rule.demand), 0, concat(rule.key, ": missing"));
    } else if (rule.occurs == Occurs::kExactlyOnce && found.size() > 1) {
      report_repeated(rule, found);
    }
  }

  /// Of two moments, which have no value, it is unknown which one counts.
  void report_repeated(const KeyRule& rule, const std::vector<const MlperfRecord*>& found) {
    for (size_t i = 1; i < found.size(); ++i) {
      const bool same = found[i]->value == found[0]->value && !found[i]->value.is_null();
      add(same ? FindingLevel::kWarning : level_of(rule.demand), found[i]->line,
          concat(rule.key, ": must occur once, is already in line ", found[0]->line,
                 same ? " with the same value"
                      : concat(" with value ", found[0]->value.dump(), "; found value ",
                               found[i]->value.dump())));
    }
  }

  /// Durations, and with them the score, are differences of time stamps.
  void check_clock() {
    const MlperfRecord* latest = nullptr;
    for (const MlperfRecord& record : all_.records) {
      if (latest != nullptr && record.time_ms < latest->time_ms - kClockSlackMs) {
        add(FindingLevel::kError, record.line,
            concat("time_ms: ", fixed_text((latest->time_ms - record.time_ms) / 1e3, 1),
                   " s before that of line ", latest->line,
                   "; the clock was set back, so no duration of this log counts"));
        return;
      }
      if (latest == nullptr || record.time_ms > latest->time_ms) latest = &record;
    }
  }

  /// What is evaluated after run_stop is not of the timed run.
  void check_target() {
    const double target = division_ == Division::kClosed ? options_.target_accuracy
                                                         : -std::numeric_limits<double>::infinity();
    std::optional<double> best;
    for (const MlperfRecord& record : all_.records) {
      if (record.key == "run_stop") break;
      if (record.key != "eval_accuracy" || !record.value.is_number()) continue;
      const double accuracy = record.value.get<double>();
      reached_target_ = reached_target_ || (accuracy >= target && accuracy < 1);
      best = std::max(best.value_or(accuracy), accuracy);
    }
    if (reached_target_ || by_key_["eval_accuracy"].empty()) return;  // reported as missing
    add(FindingLevel::kError, 0,
        concat("eval_accuracy: no value in [", fixed_text(target, 3), ", 1) before run_stop, ",
               best ? "the best is " + fixed_text(*best, 4) : "there is none"));
  }

  /// A rule of the closed division that the official checkers leave to reviewers.
  void check_cadence() {
    if (division_ != Division::kClosed) return;
    const std::string complaint = eval_cadence_complaint(all_.records);
    if (!complaint.empty()) add(FindingLevel::kWarning, 0, complaint);
  }

  MlperfCheckOptions options_;
  MlperfRecords all_;
  Division division_;
  std::vector<KeyRule> rules_;
  RecordsByKey by_key_;
  LogState state_;
  bool reached_target_ = false;
};

}  // namespace

bool MlperfCheckResult::passed() const {
  return std::none_of(findings.begin(), findings.end(), [](const LogFinding& finding) {
    return finding.level == FindingLevel::kError;
  });
}

MlperfCheckResult check_mlperf_text(const std::string& text, const MlperfCheckOptions& options) {
  return check_mlperf_records(parse_mlperf_text(text), options);
}

MlperfCheckResult check_mlperf_records(MlperfRecords records, const MlperfCheckOptions& options) {
  return Checker(options, std::move(records)).run();
}

MlperfCheckResult check_mlperf_log(const std::string& path, const MlperfCheckOptions& options) {
  return check_mlperf_text(read_text_file(path), options);
}

const char* name_of(RuleSet rule_set) { return rule_set == RuleSet::k4_0_0 ? "4.0.0" : "5.0.0"; }

std::string findings_text(const std::string& path, const MlperfCheckResult& result) {
  std::string text;
  for (const LogFinding& finding : result.findings) {
    const bool is_error = finding.level == FindingLevel::kError;
    text += concat(path, finding.line > 0 ? concat(":", finding.line) : "",
                   is_error ? ": error: " : ": warning: ", finding.text, "\n");
  }
  return text;
}

std::string check_report(const std::string& path, const MlperfCheckResult& result,
                         RuleSet rule_set) {
  const int64_t errors = std::count_if(
      result.findings.begin(), result.findings.end(),
      [](const LogFinding& finding) { return finding.level == FindingLevel::kError; });
  return findings_text(path, result) + concat(path, ": ", result.records, " ",
                                              plural(result.records, "record"), ", ", errors, " ",
                                              plural(errors, "error"), ": ",
                                              result.passed() ? "complies" : "does not comply",
                                              " with rule set ", name_of(rule_set), " for BERT\n");
}

}  // namespace bertha

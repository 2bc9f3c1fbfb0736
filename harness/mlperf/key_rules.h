#pragma once

#include <limits>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "harness/mlperf/log_parser.h"

namespace bertha {

/// What the rules compare seeds by: the source line that logged it, and the seed.
using SeedPlace = std::tuple<std::string, std::string, int64_t>;  // file, lineno, seed
/// Nothing when the record's value is no whole number or its metadata has no file and lineno.
std::optional<SeedPlace> seed_place(const MlperfRecord& record);

/// What is known from earlier records of a log.
struct LogState {
  bool init_started = false;
  bool init_stopped = false;
  bool run_started = false;
  double first_init_start_ms = std::numeric_limits<double>::infinity();
  double init_limit_minutes = 0;  // known once the division is
  std::set<SeedPlace> seeds = {};
};

enum class Occurs { kExactlyOnce, kAtLeastOnce, kOnceOrItsPartner };
/// A rule that the official checkers do not have gives warnings only.
enum class Demand { kRequired, kAdvised };

/// Returns what is wrong with the record, or "".
using RecordCheck = std::string (*)(const MlperfRecord& record, LogState& state);

struct KeyRule {
  const char* key;
  Occurs occurs;
  RecordCheck check = nullptr;
  const char* partner = "";
  Demand demand = Demand::kRequired;
};

enum class Division { kClosed, kOpen };

/// The rules of BERT's keys. That some eval_accuracy reaches the target is not among them.
///
/// Source    github.com/mlcommons/logging, compliance_checker/training_{4,5}.0.0/{common,
///           closed_common,closed_bert,open_common,open_bert}.yaml,
///           package_checker/seed_checker.py.
std::vector<KeyRule> key_rules(RuleSet rule_set, Division division);

/// The value, or NaN when it is no number.
double number_or_nan(const nlohmann::json& value);

}  // namespace bertha

#pragma once

#include "harness/cli/options.h"
#include "harness/mlperf/log_check.h"

namespace bertha {

/// --ruleset and --target-accuracy.
inline void add_rule_options(CLI::App& command, MlperfCheckOptions& rules) {
  add_choice<RuleSet>(command, "--ruleset", rules.rule_set,
                      {{"4.0.0", RuleSet::k4_0_0}, {"5.0.0", RuleSet::k5_0_0}},
                      "Rule set to check by (default 5.0.0, the last that has BERT)");
  add_number(command, "--target-accuracy", rules.target_accuracy,
             "Accuracy that some evaluation has to reach (default 0.720)", kFraction);
}

}  // namespace bertha

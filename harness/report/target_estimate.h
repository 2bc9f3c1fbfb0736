#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/run_records.h"

namespace bertha {

/// An amount that is still to come, and where it may lie.
struct Estimate {
  double low = 0;
  double middle = 0;
  double high = 0;
};

/// Seconds as "3m (2 to 5m)", with another word for " to ".
std::string estimate_text(const Estimate& seconds, const std::string& to = " to ");

/// How many samples after the last evaluation the target is reached, if the curve goes on as it
/// does. Of the last five evaluations a straight line gives the lower end, a curve that bends as
/// 1 over the samples the middle and, with its uncertainty, the upper end. Nothing while there are
/// fewer, while the accuracy does not rise clearly or its rise is still breaking off, and when the
/// target is further away than twice what these evaluations span.
///
/// On the published runs (mlperf/published_curves) the range held the evaluation that reached the
/// target in 98 of 100 cases; a test repeats that.
std::optional<Estimate> samples_to_target(const std::vector<EvalRecord>& evals,
                                          double target_accuracy);

/// The seconds from now on, of a run that is at `samples`, trains so fast and evaluates as often as
/// before.
std::optional<Estimate> seconds_to_target(const std::vector<EvalRecord>& evals,
                                          double target_accuracy, int64_t samples,
                                          double seqs_per_second);

}  // namespace bertha

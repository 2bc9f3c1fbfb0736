#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/report/metrics.h"

namespace bertha {

/// A known bad shape of a run's curve: its name, and one or two sentences with what is seen and
/// what to try next.
struct CurveRemark {
  std::string shape;
  std::string text;
};

/// All remarks on a run so far, few or none. Records may hold values that are not finite. The same
/// records give the same remarks; nothing is read or written.
std::vector<CurveRemark> examine_curve(const Metrics& metrics);

// One shape each, in the order of examine_curve.

/// Evaluations that repeat each other to the last digit, or BERT-large's that stay for 100,000
/// samples at what the start checkpoint scores untouched.
std::optional<CurveRemark> untouched_weights(const Metrics& metrics);
/// BERT-large at 0.60 to 0.645 for 300,000 samples, which a healthy run passes within one interval.
std::optional<CurveRemark> plateau_at_062(const Metrics& metrics);
/// A first loss of ln(vocabulary), that of random weights, although a checkpoint was asked for.
std::optional<CurveRemark> checkpoint_not_loaded(const Metrics& metrics);
/// Next sentences learned, masked tokens not.
std::optional<CurveRemark> next_sentence_only(const Metrics& metrics);
/// Four evaluations in a row that a table of word frequencies would score.
std::optional<CurveRemark> word_frequencies_only(const Metrics& metrics);
/// Four evaluations in a row that word frequencies score, with the masked tokens copied that keep
/// their word: a tenth of them.
std::optional<CurveRemark> context_not_used(const Metrics& metrics);
/// A loss scale below 1, or falling in sixteen records in a row.
std::optional<CurveRemark> collapsing_loss_scale(const Metrics& metrics);

/// Most of the last sixteen records with more than one of 100,000 elements too large for fp8.
std::optional<CurveRemark> saturation(const Metrics& metrics);

/// A masked-token loss of more than twice what guessing costs.
std::optional<CurveRemark> divergence(const Metrics& metrics);

/// "PATH: curve: SHAPE: TEXT" per remark, a line each; "" without remarks.
std::string curve_report(const std::string& path, const std::vector<CurveRemark>& remarks);

}  // namespace bertha

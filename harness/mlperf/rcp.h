#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bertha {

/// What runs at one batch size are compared with.
struct ReferencePoint {
  double mean_samples = 0;
  double std_samples = 0;
  double least_mean_samples = 0;  // a mean below this is faster than chance allows
  int64_t low_batch_seqs = 0;     // the measured point, or the two around the batch size
  int64_t high_batch_seqs = 0;
};

/// The reference at a batch size: a measured point, or mean and standard deviation on the line
/// between the two around it. Below the smallest the smallest counts; above the largest there is
/// none. The least mean is that of a one-sided t test of two samples with this standard deviation,
/// 5 percent, against 8 runs that count.
std::optional<ReferencePoint> reference_point(double batch_seqs);

/// Mean without the lowest and the highest value; nothing for fewer than three.
std::optional<double> olympic_mean(std::vector<double> values);

enum class Convergence {
  kPassed,        // as slow as the reference's mean, or slower
  kScaled,        // faster, within chance: the score is multiplied by a factor
  kTooFast,       // faster than chance allows
  kNoPoint,       // no reference for this batch size: one has to be submitted
  kNotConverged,  // more than one run missed the target
  kTooFewRuns,    // fewer than three
};

struct ConvergenceTest {
  Convergence verdict = Convergence::kTooFewRuns;
  double batch_seqs = 0;
  int64_t runs = 0;
  int64_t not_converged = 0;
  double mean_samples = 0;
  double score_factor = 1;  // mean of the reference / mean of the runs, at least 1
  ReferencePoint reference = {};

  bool passed() const;
};

/// Tests the samples that runs of one batch size needed against the reference; nothing stands for a
/// run that missed the target, which one may.
///
/// Source    github.com/mlcommons/logging, rcp_checker/rcp_checker.py with pruned points.
ConvergenceTest test_convergence(double batch_seqs,
                                 const std::vector<std::optional<double>>& samples);

/// One sentence.
std::string verdict_text(const ConvergenceTest& test);

}  // namespace bertha

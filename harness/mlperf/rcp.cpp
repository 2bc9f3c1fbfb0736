#include "harness/mlperf/rcp.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

/// How many sequences the benchmark's reference needed to reach 0.720 at one batch size.
struct MeasuredPoint {
  int64_t batch_seqs;
  int64_t runs;
  double mean_samples;  // without the fastest and the slowest run
  double std_samples;   // of all runs, divided by their number
};

/// The reference convergence points of BERT that count, in order of batch size. Points that are
/// slower than the line between their neighbours, and those below the fastest, are left out as the
/// package checker leaves them out (256, 1536, 3072, 4096, 8192, 8704).
///
/// Source    computed from the samples of each run in github.com/mlcommons/logging,
///           rcp_checker/training_{4,5}.0.0/rcps_bert.json, which agree.
constexpr std::array<MeasuredPoint, 7> kReferencePoints = {{
    {448, 23, 2414421.3333333335, 197392.47653603306},
    {4608, 20, 2798080.0, 130963.70526218323},
    {6144, 20, 3319125.3333333335, 146691.13630155026},
    {6912, 20, 3601920.0, 121792.77701013308},
    {12288, 20, 4465066.666666667, 88564.04543605717},
    {13056, 20, 4645333.333333333, 179017.32403317842},
    {16384, 20, 5505422.222222222, 144642.70949674584},
}};

constexpr int64_t kRunsThatCount = 8;      // of ten, without the fastest and the slowest
constexpr int64_t kInterpolatedRuns = 20;  // what the rules give a point on a line
constexpr double kMissedSamples = 1e9;     // of a run that missed the target
constexpr int64_t kMostMissed = 1;

/// The value that a t variable stays below with probability 0.95, for the degrees of freedom that
/// the points have.
double t_quantile_95(int64_t degrees) {
  switch (degrees) {
    case 24:
      return 1.710882079909428;
    case 26:
      return 1.7056179197592727;
    case 27:
      return 1.7032884457221265;
    default:
      fail(ExitCode::kInternal, "no t quantile for ", degrees, " degrees of freedom");
  }
}

double least_mean(double mean, double deviation, int64_t reference_runs) {
  const double error = deviation * std::sqrt(1.0 / static_cast<double>(reference_runs) +
                                             1.0 / static_cast<double>(kRunsThatCount));
  return mean - t_quantile_95(reference_runs + kRunsThatCount - 2) * error;
}

ReferencePoint at_point(const MeasuredPoint& point) {
  return {.mean_samples = point.mean_samples,
          .std_samples = point.std_samples,
          .least_mean_samples = least_mean(point.mean_samples, point.std_samples, point.runs - 2),
          .low_batch_seqs = point.batch_seqs,
          .high_batch_seqs = point.batch_seqs};
}

ReferencePoint between(const MeasuredPoint& low, const MeasuredPoint& high, double batch_seqs) {
  const double share = (batch_seqs - static_cast<double>(low.batch_seqs)) /
                       static_cast<double>(high.batch_seqs - low.batch_seqs);
  const double mean = std::lerp(low.mean_samples, high.mean_samples, share);
  const double deviation = std::lerp(low.std_samples, high.std_samples, share);
  return {.mean_samples = mean,
          .std_samples = deviation,
          .least_mean_samples = least_mean(mean, deviation, kInterpolatedRuns),
          .low_batch_seqs = low.batch_seqs,
          .high_batch_seqs = high.batch_seqs};
}

std::string reference_text(const ConvergenceTest& test) {
  const ReferencePoint& point = test.reference;
  const std::string batch = fixed_text(test.batch_seqs, 0);
  const std::string place =
      point.low_batch_seqs != point.high_batch_seqs
          ? concat("batch ", batch, ", interpolated between ", point.low_batch_seqs, " and ",
                   point.high_batch_seqs)
      : test.batch_seqs < static_cast<double>(point.low_batch_seqs)
          ? concat("batch ", point.low_batch_seqs, ", the smallest with a point")
          : "batch " + batch;
  return concat("the reference needs ", fixed_text(point.mean_samples, 0), " (", place,
                "), allowed is a mean of at least ", fixed_text(point.least_mean_samples, 0));
}

}  // namespace

bool ConvergenceTest::passed() const {
  return verdict == Convergence::kPassed || verdict == Convergence::kScaled;
}

std::optional<ReferencePoint> reference_point(double batch_seqs) {
  const auto above = std::find_if(
      kReferencePoints.begin(), kReferencePoints.end(),
      [&](const auto& point) { return static_cast<double>(point.batch_seqs) >= batch_seqs; });
  if (above == kReferencePoints.end()) return std::nullopt;
  const bool measured = static_cast<double>(above->batch_seqs) == batch_seqs;
  if (measured || above == kReferencePoints.begin()) return at_point(*above);
  return between(*(above - 1), *above, batch_seqs);
}

std::optional<double> olympic_mean(std::vector<double> values) {
  if (values.size() < 3) return std::nullopt;
  std::sort(values.begin(), values.end());
  return std::accumulate(values.begin() + 1, values.end() - 1, 0.0) /
         static_cast<double>(values.size() - 2);
}

ConvergenceTest test_convergence(double batch_seqs,
                                 const std::vector<std::optional<double>>& samples) {
  ConvergenceTest test{.batch_seqs = batch_seqs, .runs = static_cast<int64_t>(samples.size())};
  std::vector<double> needed;
  for (const auto& run : samples) needed.push_back(run.value_or(kMissedSamples));
  test.not_converged = std::count(samples.begin(), samples.end(), std::nullopt);
  const std::optional<double> mean = olympic_mean(needed);
  if (test.not_converged > kMostMissed) {
    test.verdict = Convergence::kNotConverged;
    return test;
  }
  if (!mean) return test;
  test.mean_samples = *mean;
  const std::optional<ReferencePoint> reference = reference_point(batch_seqs);
  if (!reference) {
    test.verdict = Convergence::kNoPoint;
    return test;
  }
  test.reference = *reference;
  test.score_factor = std::max(1.0, reference->mean_samples / *mean);
  const bool below_all_points = batch_seqs < static_cast<double>(reference->low_batch_seqs);
  if (*mean < reference->least_mean_samples) {
    test.verdict = below_all_points ? Convergence::kNoPoint : Convergence::kTooFast;
  } else {
    test.verdict = *mean < reference->mean_samples ? Convergence::kScaled : Convergence::kPassed;
  }
  return test;
}

std::string verdict_text(const ConvergenceTest& test) {
  const std::string mean =
      concat("the runs needed ", fixed_text(test.mean_samples, 0), " samples on average");
  switch (test.verdict) {
    case Convergence::kPassed:
      return concat("passed: ", mean, ", ", reference_text(test));
    case Convergence::kScaled:
      return concat("passed, needs scaling by ", fixed_text(test.score_factor, 4), ": ", mean, ", ",
                    reference_text(test));
    case Convergence::kTooFast:
      return concat("too fast: ", mean, ", ", reference_text(test),
                    "; look for a difference from the reference in data, evaluation or rules");
    case Convergence::kNoPoint:
      return concat("missing RCP: no reference point for batch ", fixed_text(test.batch_seqs, 0),
                    test.reference.low_batch_seqs > 0
                        ? concat(", and ", mean, " while ", reference_text(test))
                        : concat(", the largest is for ", kReferencePoints.back().batch_seqs),
                    "; submit one, or train with a batch that has one");
    case Convergence::kNotConverged:
      return concat("not converged: ", test.not_converged, " of ", test.runs,
                    " runs missed the target, allowed is ", kMostMissed);
    case Convergence::kTooFewRuns:
      return concat("too few runs: ", test.runs, ", the test needs 3 and a submission 10");
  }
  fail(ExitCode::kInternal, "verdict ", static_cast<int>(test.verdict));
}

}  // namespace bertha

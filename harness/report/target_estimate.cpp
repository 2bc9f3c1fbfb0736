#include "harness/report/target_estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr size_t kEvals = 5;
constexpr double kLeastLaterRise = 0.4;  // of the later half beside the earlier one
constexpr double kFurthest = 2;          // times what the evaluations span
constexpr double kStandardErrors = 3;    // that a rise has to have
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Points {
  std::vector<double> x;
  std::vector<double> y;
};

/// Where the least-squares line through the points reaches `y`.
struct Crossing {
  double low = 0;
  double x = 0;
  double high = 0;
};

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

std::optional<Crossing> crossing_of(const Points& points, double y) {
  const size_t count = points.x.size();
  const double mean_x = mean_of(points.x), mean_y = mean_of(points.y);
  double xx = 0, xy = 0, squares = 0;
  for (size_t i = 0; i < count; ++i) {
    xx += (points.x[i] - mean_x) * (points.x[i] - mean_x);
    xy += (points.x[i] - mean_x) * (points.y[i] - mean_y);
  }
  const double slope = xy / xx;
  for (size_t i = 0; i < count; ++i) {
    const double rest = points.y[i] - mean_y - slope * (points.x[i] - mean_x);
    squares += rest * rest;
  }
  const double deviation = std::sqrt(squares / static_cast<double>(count - 2));
  const double slope_error = deviation / std::sqrt(xx);
  if (!(slope > kStandardErrors * slope_error)) return std::nullopt;
  const double x = mean_x + (y - mean_y) / slope;
  // Twice the error of the line there, and the scatter of the one evaluation that has to reach it.
  const double error = 2 * std::hypot(deviation / std::sqrt(static_cast<double>(count)),
                                      slope_error * (x - mean_x)) +
                       deviation;
  return Crossing{.low = x - error / slope, .x = x, .high = x + error / slope};
}

bool is_breaking_off(const Points& points) {
  const auto rise = [&](size_t from, size_t to) {
    return (points.y[to] - points.y[from]) / (points.x[to] - points.x[from]);
  };
  const size_t last = points.x.size() - 1, half = last / 2;
  return !(rise(0, half) > 0 && rise(last - half, last) > kLeastLaterRise * rise(0, half));
}

/// The samples s at which -1 / s is this.
double samples_at(double minus_inverse) {
  return minus_inverse < 0 ? -1 / minus_inverse : kInfinity;
}

/// "45s", "3m", "2h", "3d".
std::string in_one_unit(double seconds) {
  std::string text = duration_text(seconds);
  if (!(seconds >= 59.5) || text.front() == '>') return text;
  return seconds < 3570    ? fixed_text(seconds / 60, 0) + "m"
         : seconds < 84600 ? fixed_text(seconds / 3600, 0) + "h"
                           : fixed_text(seconds / 86400, 0) + "d";
}

}  // namespace

std::string estimate_text(const Estimate& seconds, const std::string& to) {
  std::string low = in_one_unit(seconds.low), middle = in_one_unit(seconds.middle);
  const std::string high = in_one_unit(seconds.high);
  if (low == high) return middle;
  if (low.back() == high.back()) low.pop_back();
  return concat(middle, " (", low, to, high, ")");
}

std::optional<Estimate> samples_to_target(const std::vector<EvalRecord>& evals,
                                          double target_accuracy) {
  if (target_accuracy <= 0 || evals.size() < kEvals) return std::nullopt;
  Points straight, bent;
  for (size_t i = evals.size() - kEvals; i < evals.size(); ++i) {
    const auto samples = static_cast<double>(evals[i].samples);
    if (!(samples > (straight.x.empty() ? 0 : straight.x.back()))) return std::nullopt;
    straight.x.push_back(samples);
    bent.x.push_back(-1 / samples);
    straight.y.push_back(evals[i].mlm_accuracy);
  }
  bent.y = straight.y;
  if (evals.back().mlm_accuracy >= target_accuracy || is_breaking_off(straight)) {
    return std::nullopt;
  }
  const auto by_line = crossing_of(straight, target_accuracy);
  const auto by_curve = crossing_of(bent, target_accuracy);
  if (!by_line || !by_curve) return std::nullopt;
  const double now = straight.x.back(), furthest = kFurthest * (now - straight.x.front());
  const double middle = std::max(samples_at(by_curve->x) - now, 0.0);
  const double high = std::max(samples_at(by_curve->high), by_line->high) - now;
  if (!(middle <= furthest && high <= 3 * furthest)) return std::nullopt;
  return Estimate{.low = std::clamp(by_line->low - now, 0.0, middle),
                  .middle = middle,
                  .high = std::max(high, middle)};
}

std::optional<Estimate> seconds_to_target(const std::vector<EvalRecord>& evals,
                                          double target_accuracy, int64_t samples,
                                          double seqs_per_second) {
  const auto left = samples_to_target(evals, target_accuracy);
  if (!left || !(seqs_per_second > 0)) return std::nullopt;
  const EvalRecord& last = evals.back();
  const auto interval = static_cast<double>(last.samples - std::prev(evals.end(), 2)->samples);
  const double seconds_per_sample = 1 / seqs_per_second + last.seconds / interval;
  const auto seconds = [&](double from_last_evaluation) {
    const auto done = static_cast<double>(samples - last.samples);
    return std::max(from_last_evaluation - done, 0.0) * seconds_per_sample;
  };
  return Estimate{
      .low = seconds(left->low), .middle = seconds(left->middle), .high = seconds(left->high)};
}

}  // namespace bertha

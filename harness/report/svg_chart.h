#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/report/svg_axis.h"

namespace bertha {

enum class Markers { kNone, kCircles };

struct ChartSeries {
  std::string label;
  std::vector<double> x;
  std::vector<double> y;  // as many as x; a value that is not finite leaves a gap
  Markers markers = Markers::kNone;
};

/// A dashed line across the chart: a target (level in y) or a mean (upright in x).
struct MarkLine {
  std::string label;
  double value = 0;
};

/// A filled area behind the series, between two curves over the same x.
struct ChartBand {
  std::string label;
  std::vector<double> x;
  std::vector<double> low;   // as many as x
  std::vector<double> high;  // as many as x
};

/// Labels carry the unit: "step time (ms)".
struct LineChart {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  std::vector<ChartSeries> series = {};
  std::optional<ChartBand> band = {};
  std::optional<MarkLine> target = {};
  AxisScale y_scale = AxisScale::kLinear;  // on a log scale, values that are not positive are gaps
  std::optional<double> x_low = {};        // the axes reach at least down to here
  std::optional<double> y_low = {};
};

/// Counts of values in bins of equal width; bin i is [first + i * bin_width, ... + bin_width).
struct Histogram {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = "count";
  double first = 0;
  double bin_width = 1;
  std::vector<int64_t> counts = {};
  std::optional<MarkLine> mean = {};
};

/// Whole SVG documents for a browser; light or dark as the reader prefers. Without any point the
/// chart says "no data".
std::string line_chart_svg(const LineChart& chart);
std::string histogram_svg(const Histogram& histogram);

}  // namespace bertha

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace bertha {

struct ChartSeries {
  std::string label;
  std::vector<double> x;
  std::vector<double> y;  // as many as x; a value that is not finite leaves a gap
  bool circles = false;   // around the points

  bool has_point(size_t i) const { return std::isfinite(x[i]) && std::isfinite(y[i]); }
};

/// From the lowest to the highest of some values; low > high without any.
struct ValueRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

/// Adds the points of all series.
void include_points(const std::vector<ChartSeries>& series, ValueRange& x, ValueRange& y);

/// A dashed line across the chart: level at a value of y, or upright at one of x over bars.
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

/// Lines or bars. Labels carry the unit: "step time (ms)".
struct Chart {
  std::string title = {};
  std::string x_label = {};
  std::string y_label = {};
  std::vector<ChartSeries> series = {};
  std::vector<int64_t> bars = {};  // counts; bar i reaches from i to i + 1
  std::optional<ChartBand> band = {};
  std::optional<MarkLine> mark = {};
  bool from_zero = true;  // both axes reach down to 0
};

/// A whole SVG document for a browser, light or dark as the reader prefers. Without any point the
/// chart says "no data".
std::string chart_svg(const Chart& chart);

struct LabelledBar {
  std::string label;
  double value = 0;
  double mark = 0;  // drawn across the bar; 0 = none
};

/// A whole SVG document: bars from left to right, one below the other, with their values written
/// at their ends. `mark_label` says what the marks are.
std::string bars_svg(const std::string& title, const std::string& x_label,
                     const std::string& mark_label, const std::vector<LabelledBar>& bars);

enum class AxisFit { kToData, kToTicks };  // where the axis ends

/// A range with round numbers marked on it.
struct Axis {
  double low = 0;
  double high = 1;
  std::vector<double> ticks = {};  // rising, within [low, high]
};

/// About eight ticks at most, 1, 2 or 5 times a power of ten apart. An empty range is widened
/// around its value.
///
/// Needs     finite bounds, low <= high.
Axis make_axis(double low, double high, AxisFit fit);

/// "0.25", "12.5k", "1e-4".
std::string tick_label(double value);

}  // namespace bertha

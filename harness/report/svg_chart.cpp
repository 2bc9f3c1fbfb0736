#include "harness/report/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/report/svg_frame.h"
#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

bool drawable(const LineChart& chart, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (chart.y_scale == AxisScale::kLinear || y > 0);
}

struct Ranges {
  Range x;
  Range y;
};

Ranges ranges_of(const LineChart& chart) {
  Ranges ranges;
  for (const ChartSeries& series : chart.series) {
    BERTHA_CHECK(series.x.size() == series.y.size(), series.label, ": ", series.x.size(),
                 " x values and ", series.y.size(), " y values");
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (!drawable(chart, series.x[i], series.y[i])) continue;
      ranges.x.include(series.x[i]);
      ranges.y.include(series.y[i]);
    }
  }
  if (ranges.x.empty()) return ranges;
  if (chart.band) {
    for (const double x : chart.band->x) ranges.x.include(x);
    for (const double y : chart.band->low) ranges.y.include(y);
    for (const double y : chart.band->high) ranges.y.include(y);
  }
  if (chart.target) ranges.y.include(chart.target->value);
  if (chart.x_low) ranges.x.low = std::min(ranges.x.low, *chart.x_low);
  if (chart.y_low) ranges.y.low = std::min(ranges.y.low, *chart.y_low);
  return ranges;
}

std::string series_style(size_t index) { return concat("s", index % kSeriesStyles); }

std::string polyline(const std::string& points, const std::string& style) {
  // A single point would be invisible as a line; a round cap makes it a dot.
  return concat("<polyline class=\"line ", style, "\" points=\"", points, "\"/>\n");
}

std::string drawn_series(const LineChart& chart, const SvgFrame& frame, size_t index) {
  const ChartSeries& series = chart.series[index];
  const std::string style = series_style(index);
  std::string text;
  std::string circles;
  std::string points;
  for (size_t i = 0; i <= series.x.size(); ++i) {
    const bool inside = i < series.x.size() && drawable(chart, series.x[i], series.y[i]);
    if (!inside) {
      if (!points.empty()) text += polyline(points, style);
      points.clear();
      continue;
    }
    const std::string point = svg_point(frame, series.x[i], series.y[i]);
    points += points.empty() ? point + " " + point : " " + point;
    if (series.markers == Markers::kNone) continue;
    circles += concat("<circle class=\"", style, "\" r=\"3.5\" cx=\"",
                      fixed_text(svg_x(frame, series.x[i]), 1), "\" cy=\"",
                      fixed_text(svg_y(frame, series.y[i]), 1), "\"/>\n");
  }
  return text + circles;
}

/// Along the low curve, then back along the high one.
std::string drawn_band(const ChartBand& band, const SvgFrame& frame) {
  BERTHA_CHECK(band.low.size() == band.x.size() && band.high.size() == band.x.size(), band.label,
               ": ", band.x.size(), " x values, ", band.low.size(), " low and ", band.high.size(),
               " high values");
  std::string points;
  for (size_t i = 0; i < band.x.size(); ++i)
    points += svg_point(frame, band.x[i], band.low[i]) + " ";
  for (size_t i = band.x.size(); i-- > 0;)
    points += svg_point(frame, band.x[i], band.high[i]) + " ";
  return concat("<polygon class=\"band\" points=\"", points, "\"/>\n");
}

SvgFrame frame_of(const LineChart& chart, const Ranges& ranges) {
  return {.title = chart.title,
          .x_label = chart.x_label,
          .y_label = chart.y_label,
          .x = make_axis({.low = ranges.x.low, .high = ranges.x.high, .fit = AxisFit::kToData}),
          .y = make_axis({.low = ranges.y.low, .high = ranges.y.high, .scale = chart.y_scale})};
}

std::string empty_document(SvgFrame frame) {
  frame.x = make_axis({});
  frame.y = make_axis({});
  return svg_document(frame, "<text x=\"450\" y=\"250\" text-anchor=\"middle\">no data</text>\n",
                      {});
}

std::string dashed(const std::string& from, const std::string& to) {
  return concat("<polyline class=\"target\" points=\"", from, " ", to, "\"/>\n");
}

double left_edge(const Histogram& histogram, size_t bin) {
  return histogram.first + static_cast<double>(bin) * histogram.bin_width;
}

std::string bars(const Histogram& histogram, const SvgFrame& frame) {
  constexpr double kWidthWithGap = 4;  // pixels; narrower bars touch
  std::string text;
  for (size_t bin = 0; bin < histogram.counts.size(); ++bin) {
    if (histogram.counts[bin] == 0) continue;
    const double x = svg_x(frame, left_edge(histogram, bin));
    const double width = svg_x(frame, left_edge(histogram, bin + 1)) - x;
    const double y = svg_y(frame, static_cast<double>(histogram.counts[bin]));
    text += concat("<rect class=\"bar\" x=\"", fixed_text(x, 2), "\" y=\"", fixed_text(y, 1),
                   "\" width=\"", fixed_text(width - (width > kWidthWithGap ? 1 : 0), 2),
                   "\" height=\"", fixed_text(svg_y(frame, 0) - y, 1), "\"/>\n");
  }
  return text;
}

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  const Ranges ranges = ranges_of(chart);
  if (ranges.x.empty()) {
    return empty_document({.title = chart.title,
                           .x_label = chart.x_label,
                           .y_label = chart.y_label,
                           .x = {},
                           .y = {}});
  }
  const SvgFrame frame = frame_of(chart, ranges);
  std::string content;
  std::vector<LegendEntry> legend;
  if (chart.band) content += drawn_band(*chart.band, frame);
  for (size_t index = 0; index < chart.series.size(); ++index) {
    content += drawn_series(chart, frame, index);
    legend.push_back({chart.series[index].label, series_style(index)});
  }
  if (chart.band) legend.push_back({chart.band->label, "band"});
  if (chart.target) {
    content += dashed(svg_point(frame, frame.x.low, chart.target->value),
                      svg_point(frame, frame.x.high, chart.target->value));
    legend.push_back({chart.target->label, "target"});
  }
  return svg_document(frame, content, legend);
}

std::string histogram_svg(const Histogram& histogram) {
  BERTHA_CHECK(histogram.bin_width > 0, "bin_width = ", histogram.bin_width, ", want > 0");
  SvgFrame frame{.title = histogram.title,
                 .x_label = histogram.x_label,
                 .y_label = histogram.y_label,
                 .x = {},
                 .y = {}};
  const auto most = std::max_element(histogram.counts.begin(), histogram.counts.end());
  if (most == histogram.counts.end() || *most == 0) return empty_document(frame);
  frame.x = make_axis({.low = histogram.first,
                       .high = left_edge(histogram, histogram.counts.size()),
                       .fit = AxisFit::kToData});
  frame.y = make_axis({.low = 0, .high = static_cast<double>(*most)});
  std::string content = bars(histogram, frame);
  std::vector<LegendEntry> legend;
  if (histogram.mean) {
    content += dashed(svg_point(frame, histogram.mean->value, frame.y.low),
                      svg_point(frame, histogram.mean->value, frame.y.high));
    legend.push_back({histogram.mean->label, "target"});
  }
  return svg_document(frame, content, legend);
}

}  // namespace bertha

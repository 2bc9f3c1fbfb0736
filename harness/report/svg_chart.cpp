#include "harness/report/svg_chart.h"

#include <array>

#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr double kWidth = 900, kHeight = 480;
constexpr double kLeft = 78, kRight = 876, kTop = 74, kBottom = 418;
constexpr double kLegendLine = 56;     // y of the legend's text
constexpr double kLegendLetter = 7.0;  // about the width of a 13 px letter
constexpr double kTickLength = 5;
constexpr size_t kSeriesStyles = 6;  // s0 to s5

constexpr const char* kStyle = R"(<style>
text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;font-size:13px;fill:#3b4252}
.title{font-size:18px;font-weight:600;fill:#1b1f27}
.paper{fill:#ffffff}.grid{stroke:#e3e7ee;stroke-width:1}.axis{stroke:#7b8494;stroke-width:1}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.s0{stroke:#2563eb}.s1{stroke:#d9730d}.s2{stroke:#0f9d76}.s3{stroke:#8b5cf6}.s4{stroke:#d6336c}.s5{stroke:#6b7280}
.target{stroke:#c02626;stroke-width:1.5;stroke-dasharray:7 5;fill:none}
circle{stroke-width:2;fill:#ffffff}.bar{fill:#2563eb}
polygon.band{fill:#0f9d76;fill-opacity:.25;stroke:none}line.band{stroke:#0f9d76;stroke-opacity:.4;stroke-width:9}
@media (prefers-color-scheme:dark){
text{fill:#c3cad6}.title{fill:#f1f4f9}.paper{fill:#14171d}.grid{stroke:#2a303b}.axis{stroke:#8a93a3}
.s0{stroke:#6ea8fe}.s1{stroke:#f5a154}.s2{stroke:#45d1a5}.s3{stroke:#b79bff}.s4{stroke:#ff8ab3}.s5{stroke:#a8b0bd}
.target{stroke:#ff7b7b}circle{fill:#14171d}.bar{fill:#6ea8fe}}
</style>
)";

constexpr double kRounding = 1e-9;  // ticks are sums and products of doubles

double nice_step(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power * (1 + kRounding)) return factor * power;
  }
  return 10 * power;
}

/// "0.2500" -> "0.25", "12." -> "12".
std::string without_trailing_zeros(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string power_of_ten_text(double value) {
  const double power = std::floor(std::log10(value) + kRounding);
  return without_trailing_zeros(fixed_text(value / std::pow(10.0, power), 2)) + "e" +
         fixed_text(power, 0);
}

/// Text for use between tags; bytes that are no XML become '?'.
std::string svg_escape(const std::string& text) {
  std::string escaped;
  for (const char letter : text) {
    const bool control = static_cast<unsigned char>(letter) < 0x20 && letter != '\t';
    if (letter == '&') {
      escaped += "&amp;";
    } else if (letter == '<') {
      escaped += "&lt;";
    } else if (letter == '>') {
      escaped += "&gt;";
    } else if (letter == '"') {
      escaped += "&quot;";
    } else {
      escaped += control ? '?' : letter;
    }
  }
  return escaped;
}

std::string px(double value) { return fixed_text(value, 1); }

std::string segment(double x1, double y1, double x2, double y2, const std::string& style) {
  return concat("<line class=\"", style, "\" x1=\"", px(x1), "\" y1=\"", px(y1), "\" x2=\"", px(x2),
                "\" y2=\"", px(y2), "\"/>\n");
}

std::string words(double x, double y, const std::string& attributes, const std::string& content) {
  return concat("<text x=\"", px(x), "\" y=\"", px(y), "\"", attributes, ">", svg_escape(content),
                "</text>\n");
}

double fraction(const Axis& axis, double value) {
  return (value - axis.low) / (axis.high - axis.low);
}

/// Values to pixels.
struct Frame {
  Axis x_axis;
  Axis y_axis;

  double x(double value) const { return kLeft + (kRight - kLeft) * fraction(x_axis, value); }
  double y(double value) const { return kBottom - (kBottom - kTop) * fraction(y_axis, value); }
  std::string point(double at_x, double at_y) const { return px(x(at_x)) + "," + px(y(at_y)); }
};

/// The frame of all points; none without any.
std::optional<Frame> frame_of(const Chart& chart) {
  ValueRange x, y;
  include_points(chart.series, x, y);
  const auto most = std::ranges::max_element(chart.bars);
  if (most != chart.bars.end() && *most > 0) {
    x.include(static_cast<double>(chart.bars.size()));
    y.include(static_cast<double>(*most));
  }
  if (x.low > x.high) return std::nullopt;
  if (chart.from_zero) {
    x.include(std::min(x.low, 0.0));
    y.include(std::min(y.low, 0.0));
  }
  if (chart.band) {
    for (const double value : chart.band->x) x.include(value);
    for (const double value : chart.band->low) y.include(value);
    for (const double value : chart.band->high) y.include(value);
  }
  if (chart.mark && chart.bars.empty()) y.include(chart.mark->value);
  return Frame{.x_axis = make_axis(x.low, x.high, AxisFit::kToData),
               .y_axis = make_axis(y.low, y.high, AxisFit::kToTicks)};
}

std::string axes(const Chart& chart, const Frame& frame) {
  std::string text;
  for (const double tick : frame.x_axis.ticks) {
    const double at = frame.x(tick);
    text += segment(at, kTop, at, kBottom, "grid");
    text += segment(at, kBottom, at, kBottom + kTickLength, "axis");
    text += words(at, kBottom + 20, " text-anchor=\"middle\"", tick_label(tick));
  }
  for (const double tick : frame.y_axis.ticks) {
    const double at = frame.y(tick);
    text += segment(kLeft, at, kRight, at, "grid");
    text += words(kLeft - 9, at + 4.5, " text-anchor=\"end\"", tick_label(tick));
  }
  text += segment(kLeft, kBottom, kRight, kBottom, "axis");
  text += segment(kLeft, kTop, kLeft, kBottom, "axis");
  text += words((kLeft + kRight) / 2, kHeight - 16, " text-anchor=\"middle\"", chart.x_label);
  const double middle = (kTop + kBottom) / 2;
  return text +
         words(20, middle,
               concat(" text-anchor=\"middle\" transform=\"rotate(-90 20 ", px(middle), ")\""),
               chart.y_label);
}

std::string polyline(const std::string& points, const std::string& style) {
  return concat("<polyline class=\"", style, "\" points=\"", points, "\"/>\n");
}

std::string drawn_series(const ChartSeries& series, const Frame& frame, const std::string& style) {
  std::string text;
  std::string circles;
  std::string points;
  for (size_t i = 0; i <= series.x.size(); ++i) {
    if (i == series.x.size() || !series.has_point(i)) {
      if (!points.empty()) text += polyline(points, "line " + style);
      points.clear();
      continue;
    }
    const std::string point = frame.point(series.x[i], series.y[i]);
    // A single point would be invisible as a line; twice, its round cap makes it a dot.
    points += points.empty() ? point + " " + point : " " + point;
    if (!series.circles) continue;
    circles += concat("<circle class=\"", style, "\" r=\"3.5\" cx=\"", px(frame.x(series.x[i])),
                      "\" cy=\"", px(frame.y(series.y[i])), "\"/>\n");
  }
  return text + circles;
}

/// Along the low curve, then back along the high one.
std::string drawn_band(const ChartBand& band, const Frame& frame) {
  BERTHA_CHECK(band.low.size() == band.x.size() && band.high.size() == band.x.size(), band.label,
               ": ", band.x.size(), " x values, ", band.low.size(), " low and ", band.high.size(),
               " high values");
  std::string points;
  for (size_t i = 0; i < band.x.size(); ++i) points += frame.point(band.x[i], band.low[i]) + " ";
  for (size_t i = band.x.size(); i-- > 0;) points += frame.point(band.x[i], band.high[i]) + " ";
  return concat("<polygon class=\"band\" points=\"", points, "\"/>\n");
}

std::string drawn_bars(const std::vector<int64_t>& counts, const Frame& frame) {
  constexpr double kWidthWithGap = 4;  // pixels; narrower bars touch
  std::string text;
  for (size_t bar = 0; bar < counts.size(); ++bar) {
    if (counts[bar] == 0) continue;
    const double x = frame.x(static_cast<double>(bar));
    const double width = frame.x(static_cast<double>(bar + 1)) - x;
    const double y = frame.y(static_cast<double>(counts[bar]));
    text += concat("<rect class=\"bar\" x=\"", fixed_text(x, 2), "\" y=\"", px(y), "\" width=\"",
                   fixed_text(width - (width > kWidthWithGap ? 1 : 0), 2), "\" height=\"",
                   px(frame.y(0) - y), "\"/>\n");
  }
  return text;
}

std::string drawn_mark(const Chart& chart, const Frame& frame) {
  const double at = chart.mark->value;
  const bool upright = !chart.bars.empty();
  const std::string from =
      upright ? frame.point(at, frame.y_axis.low) : frame.point(frame.x_axis.low, at);
  const std::string to =
      upright ? frame.point(at, frame.y_axis.high) : frame.point(frame.x_axis.high, at);
  return polyline(from + " " + to, "target");
}

class Legend {
 public:
  void add(const std::string& label, const std::string& style) {
    text_ += segment(at_, kLegendLine - 4.5, at_ + 22, kLegendLine - 4.5, style);
    text_ += words(at_ + 29, kLegendLine, "", label);
    at_ += 29 + kLegendLetter * static_cast<double>(label.size()) + 22;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  double at_ = kLeft;
};

std::string document(const std::string& title, double height, const std::string& content) {
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kWidth, " ", height,
                "\" width=\"", kWidth, "\" height=\"", height, "\" role=\"img\">\n<title>",
                svg_escape(title), "</title>\n", kStyle,
                "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
                words(kLeft, 30, " class=\"title\"", title), content, "</svg>\n");
}

}  // namespace

void include_points(const std::vector<ChartSeries>& series, ValueRange& x, ValueRange& y) {
  for (const ChartSeries& one : series) {
    BERTHA_CHECK(one.x.size() == one.y.size(), one.label, ": ", one.x.size(), " x values and ",
                 one.y.size(), " y values");
    for (size_t i = 0; i < one.x.size(); ++i) {
      if (!one.has_point(i)) continue;
      x.include(one.x[i]);
      y.include(one.y[i]);
    }
  }
}

Axis make_axis(double low, double high, AxisFit fit) {
  constexpr double kMostSteps = 8;
  BERTHA_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, "axis from ", low, " to ",
               high);
  Axis axis{.low = low, .high = high};
  if (high - low <= std::fabs(high) * kRounding) {
    const double half = high == 0 ? 0.5 : std::fabs(high) / 10;
    axis.low -= half;
    axis.high += half;
  }
  const double step = nice_step((axis.high - axis.low) / kMostSteps);
  double first = std::ceil(axis.low / step - kRounding);
  double last = std::floor(axis.high / step + kRounding);
  if (fit == AxisFit::kToTicks) {
    first = std::floor(axis.low / step + kRounding);
    last = std::ceil(axis.high / step - kRounding);
    axis.low = first * step;
    axis.high = last * step;
  }
  for (double index = first; index <= last; ++index) axis.ticks.push_back(index * step);
  return axis;
}

std::string tick_label(double value) {
  const double size = std::fabs(value);
  if (size == 0) return "0";
  if (size < 0.9e-3) return (value < 0 ? "-" : "") + power_of_ten_text(size);
  if (size < 1e4) return without_trailing_zeros(fixed_text(value, 6));
  constexpr std::array<const char*, 4> kScales = {"k", "M", "G", "T"};
  size_t scale = 0;
  for (value /= 1000; std::fabs(value) >= 1000 && scale + 1 < kScales.size(); ++scale) {
    value /= 1000;
  }
  return without_trailing_zeros(fixed_text(value, 3)) + kScales[scale];
}

std::string chart_svg(const Chart& chart) {
  const std::optional<Frame> found = frame_of(chart);
  const Axis unit = make_axis(0, 1, AxisFit::kToTicks);
  const Frame frame = found.value_or(Frame{.x_axis = unit, .y_axis = unit});
  std::string content;
  Legend legend;
  if (!found) {
    content = "<text x=\"450\" y=\"250\" text-anchor=\"middle\">no data</text>\n";
  } else {
    if (chart.band) content += drawn_band(*chart.band, frame);
    content += drawn_bars(chart.bars, frame);
    for (size_t index = 0; index < chart.series.size(); ++index) {
      const std::string style = concat("s", index % kSeriesStyles);
      content += drawn_series(chart.series[index], frame, style);
      legend.add(chart.series[index].label, "line " + style);
    }
    if (chart.band) legend.add(chart.band->label, "band");
    if (chart.mark) {
      content += drawn_mark(chart, frame);
      legend.add(chart.mark->label, "target");
    }
  }
  return document(chart.title, kHeight, axes(chart, frame) + content + legend.text());
}

std::string bars_svg(const std::string& title, const std::string& x_label,
                     const std::string& mark_label, const std::vector<LabelledBar>& bars) {
  constexpr double kBarsLeft = 210, kValueWidth = 60, kRow = 24, kBar = 14;
  ValueRange range{.low = 0, .high = 0};
  for (const LabelledBar& bar : bars) {
    range.include(bar.value);
    range.include(bar.mark);
  }
  const Axis axis = make_axis(range.low, range.high, AxisFit::kToTicks);
  const auto x = [&](double value) {
    return kBarsLeft + (kRight - kValueWidth - kBarsLeft) * fraction(axis, value);
  };
  const double bottom = kTop + kRow * static_cast<double>(bars.size());
  std::string content;
  for (const double tick : axis.ticks) {
    content += segment(x(tick), kTop, x(tick), bottom, "grid");
    content += words(x(tick), bottom + 20, " text-anchor=\"middle\"", tick_label(tick));
  }
  double y = kTop + (kRow - kBar) / 2;
  for (const LabelledBar& bar : bars) {
    const double from = x(std::min(bar.value, 0.0));
    const double to = x(std::max(bar.value, 0.0));
    content += words(kBarsLeft - 9, y + kBar - 2, " text-anchor=\"end\"", bar.label);
    content += concat("<rect class=\"bar\" x=\"", px(from), "\" y=\"", px(y), "\" width=\"",
                      px(to - from), "\" height=\"", px(kBar), "\"/>\n");
    if (bar.mark != 0) content += segment(x(bar.mark), y - 3, x(bar.mark), y + kBar + 3, "target");
    content += words(std::max(to, bar.mark != 0 ? x(bar.mark) : to) + 6, y + kBar - 2, "",
                     fixed_text(bar.value, 1));
    y += kRow;
  }
  content += segment(x(0), kTop, x(0), bottom, "axis");
  content += words((kBarsLeft + kRight) / 2, bottom + 44, " text-anchor=\"middle\"", x_label);
  Legend legend;
  legend.add(mark_label, "target");
  return document(title, bottom + 62, content + legend.text());
}

}  // namespace bertha

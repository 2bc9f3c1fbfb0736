#include "harness/report/svg_frame.h"

#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr double kWidth = 900, kHeight = 480;
constexpr double kLeft = 78, kRight = 876, kTop = 74, kBottom = 418;
constexpr double kLegendLine = 56;     // y of the legend's text
constexpr double kLegendLetter = 7.0;  // about the width of a 13 px letter
constexpr double kTickLength = 5;

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

std::string px(double value) { return fixed_text(value, 1); }

std::string segment(double x1, double y1, double x2, double y2, const std::string& style) {
  return concat("<line class=\"", style, "\" x1=\"", px(x1), "\" y1=\"", px(y1), "\" x2=\"", px(x2),
                "\" y2=\"", px(y2), "\"/>\n");
}

std::string words(double x, double y, const std::string& attributes, const std::string& content) {
  return concat("<text x=\"", px(x), "\" y=\"", px(y), "\"", attributes, ">", svg_escape(content),
                "</text>\n");
}

std::string axes(const SvgFrame& frame) {
  std::string text;
  const std::vector<std::string> x_labels = tick_labels(frame.x);
  for (size_t i = 0; i < x_labels.size(); ++i) {
    const double at = svg_x(frame, frame.x.ticks[i]);
    text += segment(at, kTop, at, kBottom, "grid");
    text += segment(at, kBottom, at, kBottom + kTickLength, "axis");
    text += words(at, kBottom + 20, " text-anchor=\"middle\"", x_labels[i]);
  }
  const std::vector<std::string> y_labels = tick_labels(frame.y);
  for (size_t i = 0; i < y_labels.size(); ++i) {
    const double at = svg_y(frame, frame.y.ticks[i]);
    text += segment(kLeft, at, kRight, at, "grid");
    text += words(kLeft - 9, at + 4.5, " text-anchor=\"end\"", y_labels[i]);
  }
  text += segment(kLeft, kBottom, kRight, kBottom, "axis");
  text += segment(kLeft, kTop, kLeft, kBottom, "axis");
  text += words((kLeft + kRight) / 2, kHeight - 16, " text-anchor=\"middle\"", frame.x_label);
  const double middle = (kTop + kBottom) / 2;
  return text +
         words(20, middle,
               concat(" text-anchor=\"middle\" transform=\"rotate(-90 20 ", px(middle), ")\""),
               frame.y_label);
}

std::string legend_text(const std::vector<LegendEntry>& legend) {
  std::string text;
  double at = kLeft;
  for (const LegendEntry& entry : legend) {
    const bool is_series = entry.style != "target" && entry.style != "band";
    const std::string style = is_series ? "line " + entry.style : entry.style;
    text += segment(at, kLegendLine - 4.5, at + 22, kLegendLine - 4.5, style);
    text += words(at + 29, kLegendLine, "", entry.label);
    at += 29 + kLegendLetter * static_cast<double>(entry.label.size()) + 22;
  }
  return text;
}

}  // namespace

double svg_x(const SvgFrame& frame, double x) {
  return kLeft + (kRight - kLeft) * frame.x.fraction(x);
}

double svg_y(const SvgFrame& frame, double y) {
  return kBottom - (kBottom - kTop) * frame.y.fraction(y);
}

std::string svg_point(const SvgFrame& frame, double x, double y) {
  return px(svg_x(frame, x)) + "," + px(svg_y(frame, y));
}

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

std::string svg_document(const SvgFrame& frame, const std::string& content,
                         const std::vector<LegendEntry>& legend) {
  const std::string size = concat(kWidth, " ", kHeight);
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", size, "\" width=\"",
                kWidth, "\" height=\"", kHeight, "\" role=\"img\">\n<title>",
                svg_escape(frame.title), "</title>\n", kStyle,
                "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
                words(kLeft, 30, " class=\"title\"", frame.title), axes(frame), content,
                legend_text(legend), "</svg>\n");
}

}  // namespace bertha

#pragma once

#include <string>
#include <vector>

#include "harness/report/svg_axis.h"

namespace bertha {

/// The part that all charts share: an SVG document of fixed size with title, axes, grid and legend,
/// readable on light and dark backgrounds (it follows the reader's preference).
struct SvgFrame {
  std::string title;
  std::string x_label;
  std::string y_label;
  Axis x;
  Axis y;
};

/// One entry of the legend; `style` is a class of the frame's style sheet: s0 .. s5, target or
/// band.
struct LegendEntry {
  std::string label;
  std::string style;
};

constexpr int kSeriesStyles = 6;

/// Pixels of a point of the frame, "x,y" with one decimal.
std::string svg_point(const SvgFrame& frame, double x, double y);
double svg_x(const SvgFrame& frame, double x);
double svg_y(const SvgFrame& frame, double y);

/// The document: the frame, then `content` (SVG elements), then the legend.
std::string svg_document(const SvgFrame& frame, const std::string& content,
                         const std::vector<LegendEntry>& legend);

/// Text for use between tags: & < > " are escaped; bytes that are no XML become '?'.
std::string svg_escape(const std::string& text);

}  // namespace bertha

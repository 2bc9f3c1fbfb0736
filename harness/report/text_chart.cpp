#include "harness/report/text_chart.h"

#include <algorithm>
#include <cmath>

#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int64_t kLabelColumns = 8;              // of the y axis
constexpr int64_t kMarkDots = 4;                  // from one dot of a mark to the next
constexpr int64_t kDotColumns = 2, kDotRows = 4;  // of a Braille letter

/// U+2800 and the dots of `bits`, in UTF-8.
std::string braille(unsigned bits) {
  return {static_cast<char>(0xE2), static_cast<char>(0xA0 | bits >> 6),
          static_cast<char>(0x80 | (bits & 0x3F))};
}

/// The nearest of `dots` dots that reach over the range; the middle one of an empty range.
int64_t dot_of(double value, const ValueRange& range, int64_t dots) {
  const double width = range.high - range.low;
  const double share = width > 0 ? (value - range.low) / width : 0.5;
  return std::llround(share * static_cast<double>(dots - 1));
}

/// Dots and letters behind a pair of axes.
class Canvas {
 public:
  Canvas(int64_t columns, int64_t rows)
      : columns_(columns), rows_(rows), cells_(static_cast<size_t>(columns * rows)) {}

  int64_t dot_columns() const { return columns_ * kDotColumns; }
  int64_t dot_rows() const { return rows_ * kDotRows; }

  /// y counts upward.
  void dot(int64_t x, int64_t y) {
    // The letter's dots are numbered down the columns, the fourth row apart from the others.
    constexpr unsigned kBits[kDotRows][kDotColumns] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int64_t down = dot_rows() - 1 - y;
    cell(x, down).bits |= kBits[down % kDotRows][x % kDotColumns];
  }
  void letter(int64_t x, int64_t y, char letter) { cell(x, dot_rows() - 1 - y).letter = letter; }

  void line(int64_t x, int64_t y, int64_t to_x, int64_t to_y) {
    const int64_t steps = std::max({std::abs(to_x - x), std::abs(to_y - y), int64_t{1}});
    for (int64_t i = 0; i <= steps; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(steps);
      dot(std::llround(std::lerp(static_cast<double>(x), static_cast<double>(to_x), share)),
          std::llround(std::lerp(static_cast<double>(y), static_cast<double>(to_y), share)));
    }
  }

  std::string row(int64_t row) const {
    std::string text;
    for (int64_t column = 0; column < columns_; ++column) {
      const Cell& one = cells_[static_cast<size_t>(row * columns_ + column)];
      text += one.letter != 0 ? std::string(1, one.letter)
              : one.bits != 0 ? braille(one.bits)
                              : " ";
    }
    return text;
  }

 private:
  struct Cell {
    unsigned bits = 0;
    char letter = 0;
  };
  Cell& cell(int64_t x, int64_t down) {
    return cells_[static_cast<size_t>(down / kDotRows * columns_ + x / kDotColumns)];
  }

  int64_t columns_;
  int64_t rows_;
  std::vector<Cell> cells_;
};

void draw(const ChartSeries& series, const ValueRange& x, const ValueRange& y, Canvas& canvas) {
  bool is_open = false;
  int64_t last_x = 0, last_y = 0;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!series.has_point(i)) {
      is_open = false;
      continue;
    }
    const int64_t at_x = dot_of(series.x[i], x, canvas.dot_columns());
    const int64_t at_y = dot_of(series.y[i], y, canvas.dot_rows());
    if (series.circles) {
      canvas.letter(at_x, at_y, 'o');
    } else {
      canvas.line(is_open ? last_x : at_x, is_open ? last_y : at_y, at_x, at_y);
    }
    is_open = true;
    last_x = at_x;
    last_y = at_y;
  }
}

void draw_mark(const MarkLine& mark, const ValueRange& y, Canvas& canvas) {
  const int64_t at = dot_of(mark.value, y, canvas.dot_rows());
  for (int64_t x = 0; x < canvas.dot_columns(); x += kMarkDots) canvas.dot(x, at);
}

std::string title_of(const Chart& chart) {
  std::string text = chart.title + ":";
  for (const ChartSeries& series : chart.series) {
    text += concat(" ", series.circles ? "o " : "\u2812 ", series.label, ",");
  }
  if (chart.mark) text += concat(" \u2804\u2804 ", chart.mark->label, ",");
  text.pop_back();
  return text;
}

}  // namespace

std::vector<std::string> chart_lines(const Chart& chart, int64_t columns, int64_t rows) {
  std::vector<std::string> lines{fitted(title_of(chart), columns)};
  ValueRange x, y;
  include_points(chart.series, x, y);
  if (x.low > x.high) {
    lines.push_back(fitted("no data", columns));
    lines.resize(static_cast<size_t>(rows), fitted("", columns));
    return lines;
  }
  if (chart.mark) y.include(chart.mark->value);
  Canvas canvas(columns - kLabelColumns - 2, rows - 2);
  if (chart.mark) draw_mark(*chart.mark, y, canvas);
  for (const ChartSeries& series : chart.series) draw(series, x, y, canvas);
  for (int64_t row = 0; row < rows - 2; ++row) {
    const std::string label = row == 0          ? scaled_text(y.high)
                              : row == rows - 3 ? scaled_text(y.low)
                                                : "";
    lines.push_back(right_aligned(label, kLabelColumns) + " \u2502" + canvas.row(row));
  }
  const std::string left = scaled_text(x.low);
  const std::string right = concat(chart.x_label, " ", scaled_text(x.high));
  const int64_t width = columns - kLabelColumns - 2 - std::ssize(left);
  lines.push_back(fitted(std::string(kLabelColumns + 2, ' ') + left +
                             right_aligned(right, std::max(width, std::ssize(right) + 1)),
                         columns));
  return lines;
}

}  // namespace bertha

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/report/svg_chart.h"

namespace bertha {

/// Columns that UTF-8 text of letters one column wide takes in a terminal.
int64_t columns_of(const std::string& text);
/// The text in so many columns: cut, or with blanks behind it.
std::string fitted(const std::string& text, int64_t columns);

/// The lines and the mark of a chart for a terminal, in Unicode's Braille letters, each of which is
/// two dots wide and four high; points of series with circles are `o`. `rows` lines of `columns`:
/// title and labels, the curves beside the y axis, and the x axis. Without a point "no data".
///
/// Needs     columns >= 24, rows >= 4.
std::vector<std::string> chart_lines(const Chart& chart, int64_t columns, int64_t rows);

}  // namespace bertha

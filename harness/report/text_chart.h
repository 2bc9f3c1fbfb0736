#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/report/svg_chart.h"

namespace bertha {

/// The lines and the mark of a chart for a terminal, in Unicode's Braille letters, each of which is
/// two dots wide and four high; points of series with circles are `o`. `rows` lines of `columns`:
/// title and labels, the curves beside the y axis, and the x axis. Without a point "no data".
///
/// Needs     columns >= 24, rows >= 4.
std::vector<std::string> chart_lines(const Chart& chart, int64_t columns, int64_t rows);

}  // namespace bertha

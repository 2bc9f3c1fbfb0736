#pragma once

#include <string>

#include "harness/doctor/checks.h"
#include "kernels/base/figures.h"

namespace bertha {

/// Three digits and the unit: "7.25 GB/s", "46.1 GiB", "648 TFLOP/s", "1048576".
inline std::string figure_text(double value, const FigureUnit& unit) {
  const double scaled = value / unit.size;
  const std::string number = fixed_text(scaled, scaled < 10 ? 2 : scaled < 100 ? 1 : 0);
  return *unit.name == '\0' ? number : number + " " + unit.name;
}

}  // namespace bertha

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace bertha {

/// "3.142" for (3.14159, 3); "1e+300" for (1e300, 0), as all from 1e18; "nan" and "inf" as such.
inline std::string fixed_text(double value, int decimals) {
  if (std::isnan(value)) return "nan";  // printf would show the sign bit
  const char* const format = std::abs(value) < 1e18 ? "%.*f" : "%.*e";
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, format, decimals, value)), ' ');
  std::snprintf(text.data(), text.size() + 1, format, decimals, value);
  return text;
}

/// The value below which `share` of the values lie, interpolated between two of them; 0 of none.
inline double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double at = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return std::lerp(values[below], values[above], at - static_cast<double>(below));
}

}  // namespace bertha

#include "harness/config/step_range.h"

#include <charconv>

namespace bertha {

std::optional<StepRange> parse_step_range(std::string_view text) {
  StepRange range;
  const char* const end = text.data() + text.size();
  const auto [colon, first_error] = std::from_chars(text.data(), end, range.first);
  if (first_error != std::errc() || colon == end || *colon != ':') return std::nullopt;
  const auto [rest, last_error] = std::from_chars(colon + 1, end, range.last);
  if (last_error != std::errc() || rest != end) return std::nullopt;
  if (range.first < 1 || range.last < range.first) return std::nullopt;
  return range;
}

}  // namespace bertha

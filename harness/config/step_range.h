#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bertha {

/// Steps [first, last], counted from 1.
struct StepRange {
  int64_t first = 0;
  int64_t last = 0;
};

/// "11:15"; nothing when the text is not two whole numbers in order, from 1 on.
std::optional<StepRange> parse_step_range(std::string_view text);

}  // namespace bertha

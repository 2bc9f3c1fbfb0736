#include "harness/checkpoint/finite.h"

#include <algorithm>
#include <cmath>

namespace bertha {

int64_t first_not_finite(const float* values, int64_t count) {
  const float* end = values + count;
  const float* found = std::find_if(values, end, [](float value) { return !std::isfinite(value); });
  return found == end ? -1 : found - values;
}

void check_finite(ExitCode code, const std::string& path, const std::string& tensor,
                  const float* values, int64_t count) {
  if (first_not_finite(values, count) < 0) return;
  const auto bad =
      std::count_if(values, values + count, [](float value) { return !std::isfinite(value); });
  fail(code, path, ": ", bad, " of the ", count, " numbers of ", tensor, " are not finite; ",
       code == ExitCode::kNumeric
           ? "nothing is saved, earlier checkpoints are kept. Resume from one with a lower "
             "optimizer.base_learning_rate."
           : "the weights are useless, use an earlier checkpoint.");
}

}  // namespace bertha

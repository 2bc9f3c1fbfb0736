#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/error.h"

namespace bertha {

/// Index of the first NaN or infinity among `count` values; -1 if all are finite.
int64_t first_not_finite(const float* values, int64_t count);

/// Fails unless all values are finite.
///
/// Errors    Error(code) naming the file, the tensor and how many numbers are not finite; with
///           kData it says what a reader can do, with kNumeric that nothing is saved.
void check_finite(ExitCode code, const std::string& path, const std::string& tensor,
                  const float* values, int64_t count);

}  // namespace bertha

#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/format/sample.h"
#include "data/format/shard_file.h"

namespace bertha {

/// One value that a shard must not hold.
struct Violation {
  int64_t row = 0;
  std::string dataset;
  std::string what;  // value found, value wanted
};
/// Told of each violation; may throw to stop at the first.
using ViolationReport = std::function<void(const Violation&)>;

/// Checks one sample: lengths within the limits and not zero, ids and labels in the vocabulary,
/// segments 0 then 1, masked positions strictly ascending inside [1, t), next-sentence label 0
/// or 1.
void check_sample(const SampleView& sample, int64_t row, const SampleLimits& limits,
                  const ViolationReport& report);

/// Error(kData) naming `path`, where the sample was to be written as this row, when it is wrong.
void refuse_wrong_sample(const SampleView& sample, int64_t row, const SampleLimits& limits,
                         const std::string& path);

}  // namespace bertha

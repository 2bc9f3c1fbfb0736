#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops/lamb.h"

namespace bertha::testing {

/// What the GPU computes from the sources that host and device share.
/// Errors    Error(kEnvironment) with the driver's words.
std::vector<uint32_t> device_random_words(uint64_t seed, uint64_t step, uint32_t site,
                                          int64_t first_element, int64_t count);
/// Bits of groups first_group, first_group + 1, ...
std::vector<uint32_t> device_kept_bits(uint64_t seed, uint64_t step, uint32_t site,
                                       int64_t first_group, float probability, int64_t count);
std::vector<double> device_learning_rates(const LrSchedule& schedule, int64_t count);

}  // namespace bertha::testing

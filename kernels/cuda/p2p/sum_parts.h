#pragma once

#include <span>

#include "kernels/base/device.h"
#include "kernels/base/view.h"

namespace bertha {

/// Maximum number of parts of a sum.
inline constexpr int kMaxSumParts = 8;

/// sum = the parts, each times its factor, added up in their order, in f32, rounded once. `sum` may
/// be one of the parts. Without factors each is 1.
///
/// Letters   N = elements.
/// Dtypes    f32, f16, bf16.
/// Layout    parts [N] and sum [N] contiguous, aligned to 16 bytes; 1 to kMaxSumParts parts.
///           factors f32, one for each part, on the GPU.
/// Exact     bit for bit repeatable.
void sum_parts(Stream& stream, std::span<const void* const> parts, const View& sum,
               const float* factors = nullptr);

}  // namespace bertha

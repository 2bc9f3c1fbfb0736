#pragma once

#include <cstdint>

namespace bertha {

/// Order of samples: shuffled inside windows of shards, or as in the published codes.
enum class SampleOrder : uint8_t { kWindowed, kPublished };
/// How ranks balance their token counts.
enum class ExchangePadding : uint8_t { kOff, kAllGather, kLengths };

}  // namespace bertha

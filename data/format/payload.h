#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/format/sample.h"

namespace bertha {

/// What the receiver of a payload knows already about a sample in it.
struct SampleLength {
  int64_t tokens = 0;
  int64_t masked = 0;
};

/// What a sample of this length takes in a payload.
int64_t payload_bytes(const SampleLength& length);

/// Samples `rows` of a set as bytes: ids, then tokens, masked positions, masked ids, segments and
/// labels of all of them. Lengths are not in it.
std::vector<std::byte> encode_samples(const SampleSet& samples, std::span<const int64_t> rows);

/// The samples back. Error(kInternal) when the bytes do not fit the lengths.
SampleSet decode_samples(std::span<const std::byte> payload, std::span<const SampleLength> lengths);

}  // namespace bertha

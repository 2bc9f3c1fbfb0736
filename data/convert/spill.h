#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/format/sample.h"

namespace bertha {

// Reorders more sequences than memory holds: each spill file has some of them, sorted by the shard
// that they go to, so that a shard is gathered by reading one section of every file.

/// Writes the samples, whose ids are places in the new order, to a file that appears whole or not
/// at all. Shard s takes the places [shard_firsts[s], shard_firsts[s + 1]).
void write_spill(const std::string& path, const SampleSet& samples,
                 std::span<const int64_t> shard_firsts);

/// The samples of a spill file that go to one shard. Error(kData) when the file is damaged.
SampleSet read_spill(const std::string& path, int64_t shard);

}  // namespace bertha

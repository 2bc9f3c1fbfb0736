#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/sample_check.h"

namespace bertha {

/// A shard in memory, and which of its rows the samples came from.
struct ShardContents {
  SampleSet samples;
  std::vector<int64_t> row_offsets;  // [rows + 1]  first sample of each pack; empty: sample = row

  int64_t row_of(int64_t sample) const;
};

/// read_shard with a choice of what happens to wrong values: `report` hears of each. When it
/// returns, the row is kept as far as it makes sense (lists cut or filled to the row's tokens; a
/// pack whose lengths do not add up is left out).
///
/// Errors    Error(kData) for what cannot be read at all.
ShardContents read_shard_reporting(const std::string& path, int64_t first_sample_id,
                                   const SampleLimits& limits, const ViolationReport& report);

/// Throws Error(kData) naming the shard, at the first violation.
ViolationReport stop_at_violation(const std::string& path);

}  // namespace bertha

#pragma once

#include <cstdint>
#include <vector>

#include "harness/model/params.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

/// A range of the flat buffer that one collective call sums or gathers: equal slices, one per
/// shard, in the order of the shards.
struct Bucket {
  int64_t begin = 0;     // elements, in the flat buffer
  int64_t elements = 0;  // multiple of 128 per shard
};

/// A range of the flat buffer that a shard contains, and its offset in the shard.
struct ShardRange {
  int64_t flat_begin = 0;
  int64_t shard_begin = 0;
  int64_t elements = 0;
};

/// Which elements of the flat buffer belong to a shard, and to which tensors. Every rank computes
/// its own plan from the table alone; the plans of all shards tile the buffer.
///
/// A shard consists of its slices of all buckets, one after another; a single shard is the flat
/// buffer itself. Backward finishes gradients from the end of the buffer to its start, except that
/// the first part of the table becomes final all at once at the very end. So a bucket ends where
/// that part does, rounded up to whole lines of every shard: the last sum waits for nothing else.
struct ShardPlan {
  int64_t flat_elements = 0;       // P: the table padded to whole lines of every shard
  int64_t shard_elements = 0;      // N = P / shards
  int64_t norm_rows = 0;           // X: one for each norm part of each tensor, in table order
  std::vector<Bucket> buckets;     // tile the flat buffer, ascending
  std::vector<ShardRange> ranges;  // of this shard, ascending in both, not adjacent
  // Ascending; without gaps, padding and tensors without a gradient.
  std::vector<LambSegment> segments;
};

struct ShardPlanRequest {
  int shard = 0;
  int shards = 1;
  int64_t bucket_elements = 0;  // of the largest bucket; rounded up to a line of every shard
};

/// Number of `io` elements in optimizer.bucket_mib.
int64_t bucket_elements(double bucket_mib, DType io);

ShardPlan make_shard_plan(const ParamTable& table, const ShardPlanRequest& request);

}  // namespace bertha

#pragma once

#include "kernels/collectives.h"

namespace bertha {

/// Checks the views of a reduce-scatter or an all-gather: one dtype, equal shards, and the shard
/// outside the full view or in its own slot there. Error(kInternal) for all others.
void check_shard(const Collectives& collectives, const View& full, const View& shard);

/// Checks the view of a sum: f64, f32, f16, bf16 or i64, the types that some backend can sum.
/// Error(kInternal) for all others.
void check_sum(const View& values);

/// Checks the view of a maximum: i32. Error(kInternal) for all others.
void check_maximum(const View& values);

}  // namespace bertha

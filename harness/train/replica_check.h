#pragma once

#include "data/pipeline/transport.h"
#include "harness/checkpoint/checkpoint.h"

namespace bertha {

/// Compares checksums of replicated tensors, whose bits are equal by construction: the weights and
/// the optimizer's counters, and if ranks have copies of a shard, its master weights and moments.
/// A rank is wrong if it differs from a majority; of two ranks, neither can be named.
///
/// All ranks call it after the same step.
/// Blocks    the host, while all compared tensors are copied there and read once.
/// Errors    on all ranks: Error(kNumeric) naming the first tensor that differs, the ranks
///           concerned and their hosts.
void check_replicas(const CheckpointParts& parts, Transport& transport);

}  // namespace bertha

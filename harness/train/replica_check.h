#pragma once

#include "data/pipeline/transport.h"
#include "harness/checkpoint/checkpoint.h"

namespace bertha {

/// Compares checksums of what several ranks hold, which by construction has the same bits on all:
/// the weights and the optimizer's counters, and where ranks have copies of a shard its master
/// weights and moments. A rank is found wrong where most others agree; of two, neither is.
///
/// All ranks call it after the same step.
/// Blocks    the host, while everything compared is copied there and read once.
/// Errors    on all ranks: Error(kNumeric) naming the first tensor that differs, the ranks that
///           hold it and their hosts.
void check_replicas(const CheckpointParts& parts, Transport& transport);

}  // namespace bertha

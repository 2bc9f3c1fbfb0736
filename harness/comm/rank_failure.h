#pragma once

#include <cstdint>
#include <exception>

#include "harness/comm/world.h"
#include "kernels/base/failure.h"

namespace bertha {

/// `ticks` of a rank whose watchdog has ended, or which ends all ranks: its silence means nothing.
/// Negative, so that later ticks remain below zero.
constexpr int64_t kSignedOff = -(int64_t{1} << 40);

/// failure_of(), and for kMemory the keys that affect the memory of a rank.
Failure failure_of_rank(const std::exception_ptr& exception);

/// Logs failure_of_rank(), and this rank's name unless the exception is a RankError, if no other
/// rank of the node has already reported a failure; then ends all ranks with its code. Marks this
/// rank as ended, and waits until other nodes have received that. Any thread may call it.
[[noreturn]] void end_all_ranks(World& world, const std::exception_ptr& exception);

}  // namespace bertha

#pragma once

#include <exception>
#include <functional>

#include "harness/comm/world.h"

namespace bertha {

/// Runs `work` on this rank and returns its exit code; the same on every rank, or the launcher
/// reports the first one that is not 0.
///
/// Errors    when `work` throws: the sentence is logged once, also when all ranks throw it, and
///           every rank ends with the exit code of the error. A rank alone returns the code.
int run_rank(World& world, const std::function<int()>& work);

/// Logs what the exception means (failure_of()), and this rank's name unless it is a RankError, if
/// no other rank of the node has already reported a failure; then ends all ranks with its code. Any
/// thread may call it.
[[noreturn]] void end_all_ranks(World& world, const std::exception_ptr& exception);

}  // namespace bertha

#pragma once

#include <exception>

#include "harness/comm/world.h"

namespace bertha {

/// Logs what the exception means (failure_of()), and this rank's name unless it is a RankError, if
/// no other rank of the node has already reported a failure; then ends all ranks with its code. Any
/// thread may call it.
[[noreturn]] void end_all_ranks(World& world, const std::exception_ptr& exception);

}  // namespace bertha

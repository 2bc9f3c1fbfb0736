#pragma once

#include <functional>

#include "harness/comm/world.h"

namespace bertha {

/// Runs `work` and makes all ranks fail with the same error. All ranks call it; `work` must not
/// communicate.
///
/// Errors    the same RankError on every rank: of the ranks with the highest exit code, the message
///           and the name of the last one. A failed allocation counts as kMemory, what else the
///           standard library throws as kInternal.
void on_all_ranks(World& world, const std::function<void()>& work);

}  // namespace bertha

#pragma once

#include <functional>
#include <string>

#include "harness/comm/world.h"

namespace bertha {

/// Runs `work` and makes all ranks fail with the same error. All ranks call it; `work` must not
/// communicate.
///
/// Errors    the same RankError on every rank: among the ranks with the highest exit code, the
///           message and the name of the last one. failure_of() converts other exceptions.
void on_all_ranks(World& world, const std::function<void()>& work);
/// The same for work that only rank 0 does.
void on_first_rank(World& world, const std::function<void()>& work);
/// Returns rank 0's result on all ranks.
std::string text_of_first_rank(World& world, const std::function<std::string()>& find);

}  // namespace bertha

#pragma once

#include <functional>
#include <string>

#include "harness/comm/world.h"

namespace bertha {

/// Runs `work` and makes all ranks fail with the same error. All ranks call it; `work` must not
/// communicate.
///
/// Errors    the same RankError on every rank: of the ranks with the highest exit code, the message
///           and the name of the last one. Other exceptions count as failure_of() says.
void on_all_ranks(World& world, const std::function<void()>& work);
/// The same of work that rank 0 alone does.
void on_first_rank(World& world, const std::function<void()>& work);
/// The text that it finds on rank 0, on all ranks.
std::string text_of_first_rank(World& world, const std::function<std::string()>& find);

}  // namespace bertha

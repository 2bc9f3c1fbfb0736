#pragma once

#include <CLI/CLI.hpp>

#include "harness/comm/world.h"
#include "harness/config/config.h"

namespace bertha {

/// Whether the training batch must divide over the ranks of this run.
enum class BatchRule { kDividesOverRanks, kAnySize };

/// The configuration of the parsed options, the same on all ranks: rank 0 reads the files,
/// checks them against the number of ranks and broadcasts the result. Collective.
///
/// Errors    every rank throws the Error of rank 0.
Config config_for_ranks(const CLI::App& command, World& world, BatchRule rule);

}  // namespace bertha

#pragma once

#include <span>
#include <string>
#include <vector>

namespace bertha {

/// The cores that one rank may use when it starts.
struct RankCores {
  std::string machine;         // equal for the ranks that share a kernel
  std::vector<int> cores;      // in the order of the topology, neighbours first
  std::vector<int> near = {};  // those on the NUMA node of the rank's GPU; empty = none or unknown
};

struct CorePlan {
  enum class Action { kKeep, kBind };
  Action action = Action::kKeep;
  std::vector<int> cores;  // where the rank runs
  int threads = 1;         // how many threads of it find a core of their own
  std::string reason = "";
};

/// Decides where rank `self` runs. Ranks of one machine that were all given the same cores divide
/// them evenly: those of a NUMA node among the ranks whose GPU sits there, when that is known of
/// all of them and gives each a core, else all cores among all ranks. A rank that the launcher
/// gave cores of its own keeps them, or those of them near its GPU; with more ranks than cores
/// no rank is bound, and each has one thread.
CorePlan plan_cores(std::span<const RankCores> ranks, int self);

/// "0-3,8" for {0, 1, 2, 3, 8}.
std::string core_list(const std::vector<int>& cores);

}  // namespace bertha

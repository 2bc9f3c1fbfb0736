#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/doctor/rank_facts.h"

namespace bertha {

/// One thing that is not as it should be.
struct Trouble {
  std::string host;
  std::string sentence;  // what was found, what was wanted, what to do
  bool refuses = true;   // false: a job may start all the same
};

/// The ranks under one kernel.
struct NodeVerdict {
  std::string host;
  std::vector<int> ranks;
  bool is_healthy = true;
};

struct Diagnosis {
  std::vector<NodeVerdict> nodes;  // in the order of their first ranks
  std::vector<Trouble> troubles;   // node by node
  bool is_healthy() const;
};

/// Judges a job by what its ranks measured, in rank order, by the bounds of checks.h. A figure is
/// compared with its median over the ranks that have it, when there are at least two; GEMMs also
/// with the data sheet of a known GPU.
Diagnosis diagnose(std::span<const RankFacts> ranks);

}  // namespace bertha

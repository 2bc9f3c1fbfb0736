#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/doctor/rank_facts.h"

namespace bertha {

/// A fault that the doctor found.
struct Trouble {
  std::string host;
  std::string sentence;  // found, wanted, what to do
  bool refuses = true;   // false: a job may start anyway
};

/// The ranks of one machine.
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

/// Checks the measurements of a job's ranks, in rank order, against the bounds in checks.h. A
/// figure is compared with its median over the ranks that have it, if there are at least two; GEMMs
/// also with the data sheet of a known GPU.
Diagnosis diagnose(std::span<const RankFacts> ranks);

}  // namespace bertha

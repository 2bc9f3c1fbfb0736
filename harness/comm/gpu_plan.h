#pragma once

#include <span>
#include <string>
#include <vector>

namespace bertha {

/// The GPUs that a rank sees when it starts.
struct RankGpus {
  std::string machine;               // equal for the ranks that share a kernel
  int node_rank = 0;                 // among the ranks of its node
  std::vector<std::string> bus_ids;  // by ordinal: "0000:1b:00.0"
  std::string host = "";             // for messages
};

/// The ordinal of the GPU of rank `self`: its number on the node, or 0 if the launcher shows every
/// rank only its own GPU.
///
/// Errors    Error(kEnvironment) on every rank if any rank sees no GPU or too few, or would share
///           one with another rank.
int plan_gpu(std::span<const RankGpus> ranks, int self);

}  // namespace bertha

#pragma once

#include <span>
#include <string>
#include <vector>

namespace bertha {

/// The GPUs that one rank sees when it starts.
struct RankGpus {
  std::string machine;               // equal for the ranks that share a kernel
  int node_rank = 0;                 // among the ranks of its node
  std::vector<std::string> bus_ids;  // by ordinal: "0000:1b:00.0"
  std::string host = "";             // for messages
};

/// The ordinal of the GPU of rank `self`: its place on the node, or the only GPU that it sees,
/// where the launcher shows every rank one of its own.
///
/// Errors    Error(kEnvironment) on every rank, when any rank sees no GPU, too few of them, or
///           would share one with another rank.
int plan_gpu(std::span<const RankGpus> ranks, int self);

}  // namespace bertha

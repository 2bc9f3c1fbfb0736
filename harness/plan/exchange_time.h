#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/optim/shard_plan.h"
#include "kernels/base/divide.h"

namespace bertha {

/// What connects the nodes of a job, as one GPU sees it.
struct Network {
  std::string name;
  double bytes_per_second = 0;  // of a GPU, each way, what a large message reaches
  double latency_us = 0;        // of one hop of a collective
};

/// A name of known_networks(), or "GB/s per GPU" with ":latency in us" or without it: "46", "46:4".
///
/// Errors    Error(kUsage) naming --network.
Network parse_network(const std::string& text);
const std::vector<Network>& known_networks();

/// The GPUs of a job: all those of a node reach each other by NVLink, and each has a part of the
/// network of its own.
struct Cluster {
  int64_t ranks = 1;
  int64_t ranks_per_node = 8;
  Network network = {};  // read where there are several nodes
  bool copies = true;    // within a node, instead of NCCL
  // The optimizer's state: a shard on each GPU of a node, or, as nodes of one GPU always have it, a
  // shard on each of all GPUs.
  bool state_in_each_node = true;

  int64_t nodes() const { return ceil_div(ranks, ranks_per_node); }
  int64_t gpus_of_node() const { return ranks < ranks_per_node ? ranks : ranks_per_node; }
  int64_t shards() const {
    return state_in_each_node && ranks_per_node > 1 ? gpus_of_node() : ranks;
  }
};

/// Milliseconds of a reduce-scatter or an all-gather within a node, of so many bytes (of the full
/// buffer).
double in_node_ms(const Cluster& cluster, double bytes);

/// Milliseconds of an all-reduce between nodes of so many bytes of each GPU of a node, all of them
/// at once: the faster of a ring, whose latency grows with the nodes, and of a tree with less
/// bandwidth, whose latency grows with their logarithm.
double between_nodes_ms(const Cluster& cluster, double bytes);

/// Milliseconds of a sum of a few numbers over all ranks.
double small_sum_ms(const Cluster& cluster);

/// A step's exchange of gradients and weights.
struct ExchangeTime {
  double sums_ms = 0;            // of gradients, in and between nodes
  double hidden_sums_ms = 0;     // before the end of backward
  double gathers_ms = 0;         // of weights
  double hidden_gathers_ms = 0;  // while LAMB and forward of the next step go on
  double slowdown_ms = 0;        // of the kernels beside it, which share memory and SMs
};

struct ExchangeRequest {
  Cluster cluster;
  const ParamTable* table = nullptr;
  const ShardPlan* shards = nullptr;
  int64_t bytes_per_element = 2;
  double forward_ms = 0;                // of the first micro-batch
  double backward_ms = 0;               // of the last
  double apply_ms = 0;                  // the part of LAMB that writes weights, bucket by bucket
  bool sums_wait_for_backward = false;  // the clip before the reduction sees the whole gradient
};

/// Follows the buckets: the sum of one begins when backward has finished it, inside the node first;
/// forward waits for the weights it is about to use, which come from where the shards are. Each of
/// the two levels takes one bucket after the other.
ExchangeTime exchange_time(const ExchangeRequest& request);

}  // namespace bertha

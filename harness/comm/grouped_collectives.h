#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "harness/comm/world.h"
#include "harness/config/choices.h"
#include "kernels/base/device.h"
#include "kernels/collectives.h"

namespace bertha {

/// How the ranks of several nodes share a reduce-scatter and an all-gather.
enum class Grouping : uint8_t {
  kFlat,       // all ranks in one call
  kNode,       // one shard for each rank of a node, with a copy on every node
  kTwoLevels,  // one shard for each rank, inside the node first
};

/// The nodes of a run, the same on every rank.
struct NodeSizes {
  int ranks = 1;     // all
  int smallest = 1;  // ranks of a node
  int largest = 1;
};

/// The grouping for a value of optimizer.shard_group. auto: kNode if several nodes have several
/// ranks each, the same number on each; otherwise as world. world: kTwoLevels on such nodes, else
/// kFlat.
///
/// Errors    Error(kUsage) for node if the nodes differ in size.
Grouping plan_grouping(ShardGroup shard_group, const NodeSizes& nodes);

/// plan_grouping() for the nodes of this world; all ranks call it. Rank 0 logs it if there are
/// several nodes.
Grouping choose_grouping(ShardGroup shard_group, World& world);

/// The ranks that collectives connect: all ranks, the ranks of a node, or ranks of several nodes
/// (other collectives then connect the ranks of each node).
enum class Level : uint8_t { kAll, kNode, kBetweenNodes };

/// Creates the collectives of one level in a world of only its ranks; on `stream` unless null.
using MakeLevel =
    std::function<std::unique_ptr<Collectives>(Level level, World& ranks, Stream* stream)>;

/// Collectives that send only this rank's share of a view to other nodes. With N nodes of G ranks:
///
///   kNode       sum: reduce-scatter inside the node, then all-reduce of the shard [P / G] between
///               the ranks with the same number on each node. Gather: inside the node.
///   kTwoLevels  sum: the same, with a reduce-scatter to [P / (G N)] for the all-reduce. Gather:
///               between nodes to [P / G], then inside the node. Leaves the sum inside the node at
///               this rank's place in the full view.
///
/// Both send the same amount between nodes. The two levels have separate streams, so that one view
/// is sent between nodes while the next is summed inside the node. All-reduces are over all ranks
/// at once: every rank has the same bits.
///
/// kFlat returns the collectives of Level::kAll themselves. Creation and destruction are collective
/// calls; destroy before `device` and `world`.
std::unique_ptr<Collectives> make_grouped_collectives(Grouping grouping, World& world,
                                                      Device& device, const MakeLevel& make_level);

}  // namespace bertha

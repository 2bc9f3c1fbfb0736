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
  kNode,       // one shard for each rank of a node, of which every node holds a copy
  kTwoLevels,  // one shard for each rank, inside the node first
};

/// The nodes of a run, as any rank sees them.
struct NodeSizes {
  int ranks = 1;     // all
  int smallest = 1;  // ranks of a node
  int largest = 1;
};

/// What a value of optimizer.shard_group means on these nodes. auto is kNode where several nodes
/// have several ranks each, equally many on each, and otherwise what world is: kTwoLevels where
/// there are such nodes, else kFlat.
///
/// Errors    Error(kUsage): node where nodes differ in size.
Grouping plan_grouping(ShardGroup shard_group, const NodeSizes& nodes);

/// plan_grouping for the nodes of this world; all ranks call it. Rank 0 logs it for several nodes.
Grouping choose_grouping(ShardGroup shard_group, World& world);

/// What some collectives connect: all ranks, the ranks of a node, or ranks of several nodes while
/// others serve the ranks of a node.
enum class Level : uint8_t { kAll, kNode, kBetweenNodes };

/// Makes the collectives of one level, in a world of its ranks alone; on `stream` unless it is
/// null.
using MakeLevel =
    std::function<std::unique_ptr<Collectives>(Level level, World& ranks, Stream* stream)>;

/// Collectives that send only this rank's share of a view to other nodes. With N nodes of G ranks:
///
///   kNode       sum: reduce-scatter inside the node, then all-reduce of the shard [P / G] between
///               the ranks in the same place of each node. Gather: inside the node.
///   kTwoLevels  sum: the same, with a reduce-scatter to [P / (G N)] for the all-reduce. Gather:
///               between nodes to [P / G], then inside the node. Leaves the sum inside the node at
///               this rank's place in the full view.
///
/// Both send as much between nodes. The two levels have streams of their own, so that one view is
/// under way between nodes while the next is inside the node. All-reduces are over all ranks at
/// once: every rank has the same bits.
///
/// kFlat gives the collectives of Level::kAll themselves. Making and destroying are collective
/// calls; destroy before `device` and `world`.
std::unique_ptr<Collectives> make_grouped_collectives(Grouping grouping, World& world,
                                                      Device& device, const MakeLevel& make_level);

}  // namespace bertha

#include "harness/comm/grouped_collectives.h"

#include <utility>
#include <vector>

#include "harness/comm/shard_check.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

/// The ranks of one level and their collectives.
struct Part {
  std::unique_ptr<World> world;
  std::unique_ptr<Collectives> collectives;
};

class GroupedCollectives final : public Collectives {
 public:
  /// `peers` and `all` share a stream. Their kernels and the kernels of `node` may run at the same
  /// time: all ranks issue the calls of each in one order, and a GPU has room for both.
  GroupedCollectives(Grouping grouping, Device& device, Part node, Part peers,
                     std::unique_ptr<Collectives> all)
      : is_copied_(grouping == Grouping::kNode),
        event_(device.make_event()),
        node_world_(std::move(node.world)),
        peer_world_(std::move(peers.world)),
        node_(std::move(node.collectives)),
        peers_(std::move(peers.collectives)),
        all_(std::move(all)) {}

  int rank() const override { return all_->rank(); }
  int size() const override { return all_->size(); }
  int shard() const override {
    return is_copied_ ? node_->rank() : node_->rank() * peers_->size() + peers_->rank();
  }
  int shard_count() const override { return is_copied_ ? node_->size() : size(); }
  bool is_first_of_shard() const override { return !is_copied_ || peers_->rank() == 0; }

  Stream& stream() override { return all_->stream(); }
  void wait_for(const Event& event) override {
    node_->wait_for(event);
    peers_->wait_for(event);
  }
  void record(Event& event) override {
    Collectives& last = ends_in_node_ ? *node_ : *peers_;
    follow(ends_in_node_ ? *peers_ : *node_, last);
    last.record(event);
  }

  Buffer allocate_shared(Device& device, int64_t bytes) override {
    return node_->allocate_shared(device, bytes);
  }
  void check() override {
    node_->check();
    peers_->check();
    all_->check();
  }

  void reduce_scatter_sum(const View& full, const View& shard) override {
    check_shard(*this, full, shard);
    const View of_node = part_of_node(full, shard);
    node_->reduce_scatter_sum(full, of_node);
    follow(*node_, *peers_);
    sum_between_nodes(of_node, shard);
    ends_in_node_ = false;
  }

  std::unique_ptr<ScaledSums> make_scaled_sums(Device& device, int64_t bytes) override {
    auto node = node_->make_scaled_sums(device, bytes);
    return node ? std::make_unique<GroupedSums>(*this, std::move(node)) : nullptr;
  }

  void all_gather(const View& shard, const View& full) override {
    check_shard(*this, full, shard);
    const View of_node = part_of_node(full, shard);
    if (!is_copied_) peers_->all_gather(shard, of_node);
    follow(*peers_, *node_);
    node_->all_gather(of_node, full);
    ends_in_node_ = true;
  }

  void all_reduce_sum(const View& values) override {
    all_->all_reduce_sum(values);
    ends_in_node_ = false;
  }
  void all_reduce_max(const View& values) override {
    all_->all_reduce_max(values);
    ends_in_node_ = false;
  }

 private:
  /// Scales inside the node.
  class GroupedSums final : public ScaledSums {
   public:
    GroupedSums(GroupedCollectives& levels, std::unique_ptr<ScaledSums> node)
        : levels_(levels), node_(std::move(node)) {}

    void send_ahead(const View& full) override {
      node_->send_ahead(full);
      levels_.ends_in_node_ = true;
    }
    void reduce_scatter(std::span<const ScatterSum> sums, const View& factor) override {
      std::vector<ScatterSum> of_node;
      for (const ScatterSum& sum : sums) {
        check_shard(levels_, sum.full, sum.shard);
        of_node.push_back({sum.full, levels_.part_of_node(sum.full, sum.shard)});
      }
      node_->reduce_scatter(of_node, factor);
      levels_.follow(*levels_.node_, *levels_.peers_);
      for (size_t i = 0; i < sums.size(); ++i) {
        levels_.sum_between_nodes(of_node[i].shard, sums[i].shard);
      }
      levels_.ends_in_node_ = false;
    }

   private:
    GroupedCollectives& levels_;
    std::unique_ptr<ScaledSums> node_;
  };

  /// Makes future calls of `later` begin after the calls that `earlier` has received so far.
  void follow(Collectives& earlier, Collectives& later) {
    earlier.record(*event_);
    later.wait_for(*event_);
  }

  void sum_between_nodes(const View& of_node, const View& shard) {
    is_copied_ ? peers_->all_reduce_sum(shard) : peers_->reduce_scatter_sum(of_node, shard);
  }

  /// This rank's part of a sum or gather within its node: a copied shard, or the part of the full
  /// view that the ranks with this number on each node share.
  View part_of_node(const View& full, const View& shard) const {
    if (is_copied_) return shard;
    const int64_t elements = full.elements() / node_->size();
    return full.rows(node_->rank() * elements, elements);
  }

  bool is_copied_;
  bool ends_in_node_ = true;  // the last call
  std::unique_ptr<Event> event_;
  std::unique_ptr<World> node_world_;
  std::unique_ptr<World> peer_world_;
  std::unique_ptr<Collectives> node_;
  std::unique_ptr<Collectives> peers_;
  std::unique_ptr<Collectives> all_;  // uses the stream of peers_
};

std::string describe(Grouping grouping, const NodeSizes& nodes) {
  const std::string where =
      nodes.smallest == nodes.largest
          ? concat(nodes.ranks / nodes.largest, " nodes of ", nodes.largest, " ranks: ")
          : concat(nodes.ranks, " ranks on nodes of ", nodes.smallest, " to ", nodes.largest, ": ");
  switch (grouping) {
    case Grouping::kNode:
      return where + "each node has the whole state of the optimizer, divided among its ranks";
    case Grouping::kTwoLevels:
      return where +
             "the state of the optimizer is divided among all ranks, with sums by node first";
    default:
      return where + "the state of the optimizer is divided among all ranks, with sums over all";
  }
}

}  // namespace

Grouping plan_grouping(ShardGroup shard_group, const NodeSizes& nodes) {
  const bool is_one_node = nodes.ranks == nodes.largest;
  const bool are_equal = nodes.smallest == nodes.largest;
  if (shard_group == ShardGroup::kNode && !are_equal) {
    fail(ExitCode::kUsage, "optimizer.shard_group is node, but nodes have ", nodes.smallest, " to ",
         nodes.largest,
         " ranks, want the same number on each; start as many on each, or set it to world.");
  }
  if (is_one_node) return Grouping::kFlat;
  if (shard_group == ShardGroup::kNode) return Grouping::kNode;
  if (!are_equal || nodes.largest == 1) return Grouping::kFlat;
  return shard_group == ShardGroup::kAuto ? Grouping::kNode : Grouping::kTwoLevels;
}

Grouping choose_grouping(ShardGroup shard_group, World& world) {
  if (world.node_size() == world.size()) return Grouping::kFlat;  // true on every rank
  const NodeSizes nodes{.ranks = world.size(),
                        .smallest = -world.agree_max(-world.node_size()),
                        .largest = world.agree_max(world.node_size())};
  const Grouping grouping = plan_grouping(shard_group, nodes);
  if (world.rank() == 0) log_line(LogLevel::kInfo, describe(grouping, nodes));
  return grouping;
}

std::unique_ptr<Collectives> make_grouped_collectives(Grouping grouping, World& world,
                                                      Device& device, const MakeLevel& make_level) {
  if (grouping == Grouping::kFlat) return make_level(Level::kAll, world, nullptr);
  Part node{.world = world.make_node_world(), .collectives = nullptr};
  node.collectives = make_level(Level::kNode, *node.world, nullptr);
  Part peers{.world = world.make_peer_world(), .collectives = nullptr};
  peers.collectives = make_level(Level::kBetweenNodes, *peers.world, nullptr);
  auto all = make_level(Level::kBetweenNodes, world, &peers.collectives->stream());
  return std::make_unique<GroupedCollectives>(grouping, device, std::move(node), std::move(peers),
                                              std::move(all));
}

}  // namespace bertha

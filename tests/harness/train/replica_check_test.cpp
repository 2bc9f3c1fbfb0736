#include "harness/train/replica_check.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "harness/comm/rank_name.h"
#include "kernels/base/tests/matchers.h"
#include "kernels/ops/lamb_state.h"
#include "tests/harness/train/training_rig.h"
#include "tests/support/thread_world.h"

namespace bertha::testing {
namespace {

using ::testing::Each;

/// Every rank holds the whole of the optimizer's state.
class OneShard final : public Collectives {
 public:
  explicit OneShard(Collectives& ranks) : ranks_(ranks) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  int shard_count() const override { return 1; }
  int shard() const override { return 0; }
  bool is_first_of_shard() const override { return rank() == 0; }
  Stream& stream() override { return ranks_.stream(); }
  void reduce_scatter_sum(const View& full, const View&) override { all_reduce_sum(full); }
  void all_gather(const View& shard, const View& full) override {
    if (shard.data != full.data)
      std::memcpy(full.data, shard.data, static_cast<size_t>(full.bytes()));
  }
  void all_reduce_sum(const View& values) override { ranks_.all_reduce_sum(values); }
  void all_reduce_max(const View& values) override { ranks_.all_reduce_max(values); }

 private:
  Collectives& ranks_;
};

/// Trains a step, lets `change` touch each rank's copy, and compares. Returns what each rank says.
std::vector<std::string> complaints(int ranks, bool one_shard,
                                    const std::function<void(TrainingRig&, int rank)>& change) {
  ThreadWorld world(ranks);
  std::vector<std::string> all(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Device& device, Collectives& collectives) {
    OneShard whole(collectives);
    TrainingRig rig(device, one_shard ? whole : collectives, rig_model(), 0.003);
    const int rank = collectives.rank();
    const auto mine = rig_sequences(4, 4 * rank);
    train_step(rig_step({mine}, 4 * ranks, num_masked(rig_sequences(4 * ranks))),
               {.num_ranks = ranks}, rig.step_parts());
    change(rig, rank);
    try {
      check_replicas({.device = &device,
                      .stream = rig.stream.get(),
                      .optimizer = &rig.optimizer,
                      .table = &rig.table,
                      .dims = {}},
                     world.transport(rank));
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ExitCode::kNumeric);
      all[static_cast<size_t>(rank)] = error.what();
    }
  });
  return all;
}

void flip_lowest_bit(const View& values, int64_t element) {
  static_cast<uint32_t*>(values.data)[element] ^= 1u;
}

TEST(ReplicaCheck, RanksAgreeAfterAStep) {
  for (const bool one_shard : {false, true}) {
    EXPECT_THAT(complaints(3, one_shard, [](TrainingRig&, int) {}), Each(""));
  }
}

TEST(ReplicaCheck, NamesTensorRankAndHostOfAFlippedBit) {
  const auto flip = [](TrainingRig& rig, int rank) {
    const ParamInfo& param = rig.table.find("layer.0.feed_forward.in.weight");
    if (rank == 1) flip_lowest_bit(rig.optimizer.weights(), param.offset + param.elements - 1);
  };
  EXPECT_THAT(
      complaints(3, false, flip),
      Each(AllOf(HasSubstr("the weights of layer.0.feed_forward.in.weight on rank 1 of 3 on " +
                           own_host() + " have other bits than on the other ranks"),
                 Not(HasSubstr("rank 0")), Not(HasSubstr("rank 2")))));
}

TEST(ReplicaCheck, OfTwoRanksNeitherIsTakenForTheRightOne) {
  const auto flip = [](TrainingRig& rig, int rank) {
    if (rank == 0) flip_lowest_bit(rig.optimizer.weights(), 5);
  };
  EXPECT_THAT(
      complaints(2, false, flip),
      Each(AllOf(HasSubstr("the weights of embeddings.word.weight differ between rank 0 of 2"),
                 HasSubstr("rank 1 of 2"), HasSubstr("no majority"))));
}

TEST(ReplicaCheck, ComparesMomentsWhereShardsHaveCopies) {
  const auto flip = [](TrainingRig& rig, int rank) {
    const ParamInfo& param = rig.table.find("pooler.weight");
    if (rank == 2) flip_lowest_bit(rig.optimizer.v(), param.offset);
  };
  EXPECT_THAT(complaints(3, true, flip),
              Each(HasSubstr("the second moments of pooler.weight on rank 2 of 3 on " + own_host() +
                             " have other bits")));
  // Elsewhere each rank has the only copy of its shard.
  const auto flip_own = [](TrainingRig& rig, int rank) {
    if (rank == 2) flip_lowest_bit(rig.optimizer.v(), 0);
  };
  EXPECT_THAT(complaints(3, false, flip_own), Each(""));
}

TEST(ReplicaCheck, ComparesTheCountersOfTheOptimizer) {
  const auto change = [](TrainingRig& rig, int rank) {
    if (rank == 0) static_cast<LambState*>(rig.optimizer.state().data)->skipped_steps += 1;
  };
  EXPECT_THAT(complaints(3, false, change),
              Each(HasSubstr("the counters of the optimizer on rank 0 of 3 on " + own_host() +
                             " have other bits")));
}

}  // namespace
}  // namespace bertha::testing

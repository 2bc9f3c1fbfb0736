#include "harness/train/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>

#include "kernels/base/tests/tolerance.h"
#include "kernels/ops/lamb_state.h"
#include "kernels/ops/quantize.h"
#include "tests/harness/train/training_rig.h"

namespace bertha::testing {
namespace {

/// Gradient norm of the step, before clipping, and the weights after it.
struct StepResult {
  double gradient_norm = 0;
  std::vector<float> weights;
  LambState state;
};

using Assigned = std::vector<std::vector<TinySequence>>;  // [micro-batch] of one rank

/// One step of `ranks` ranks; `assign` gives each its micro-batches out of 12 sequences.
StepResult run_step(int ranks, LossMeanRule rule, const std::function<Assigned(int rank)>& assign,
                    double dropout = 0, int64_t step = 0, uint64_t seed = 5,
                    double bucket_mib = 100, double nsp_weight = 1) {
  const int64_t masked = num_masked(rig_sequences(12));
  StepResult result;
  std::mutex mutex;
  run_ranks(ranks, [&](Device& device, Collectives& collectives) {
    TrainingRig rig(device, collectives, rig_model(dropout), bucket_mib);
    StepBatch batch = rig_step(assign(collectives.rank()), 12, masked);
    batch.step = step;
    train_step(batch,
               {.loss_mean = rule,
                .nsp_weight = nsp_weight,
                .dropout_seed = seed + static_cast<uint64_t>(collectives.rank()),
                .num_ranks = ranks},
               rig.step_parts());
    const std::lock_guard<std::mutex> lock(mutex);
    result = {
        .gradient_norm = rig.state().gradient_norm, .weights = rig.weights(), .state = rig.state()};
  });
  return result;
}

Assigned whole(int) { return {rig_sequences(12)}; }

void expect_same_step(const StepResult& one, const StepResult& other) {
  EXPECT_NEAR(one.gradient_norm, other.gradient_norm,
              tolerance::kModelGradientF32 * std::max(1.0, one.gradient_norm));
  EXPECT_GT(one.gradient_norm, 0.1);
}

TEST(TrainStep, GlobalMeanDoesNotDependOnMicroBatchesOrRanks) {
  const StepResult alone = run_step(1, LossMeanRule::kGlobal, whole);
  const auto all = rig_sequences(12);
  expect_same_step(alone, run_step(1, LossMeanRule::kGlobal, [&](int) {
                     return Assigned{part_of(all, 0, 5), part_of(all, 5, 1), part_of(all, 6, 6)};
                   }));
  expect_same_step(alone, run_step(3, LossMeanRule::kGlobal, [&](int rank) {
                     return rank == 0   ? Assigned{part_of(all, 0, 7)}
                            : rank == 1 ? Assigned{part_of(all, 7, 1)}
                                        : Assigned{part_of(all, 8, 4)};
                   }));
}

// A sum that began before the last micro-batch, or before its layer, would lack a part of it.
TEST(TrainStep, SumsOfSmallBucketsDuringBackwardLackNothing) {
  const auto all = rig_sequences(12);
  const auto assign = [&](int rank) {
    return rank == 0 ? Assigned{part_of(all, 0, 3), part_of(all, 3, 2), part_of(all, 5, 2)}
                     : Assigned{part_of(all, 7, 1), part_of(all, 8, 1), part_of(all, 9, 3)};
  };
  const StepResult whole_buffer = run_step(2, LossMeanRule::kGlobal, assign);
  expect_same_step(run_step(1, LossMeanRule::kGlobal, whole), whole_buffer);
  for (const double bucket_mib : {1e-6, 0.003}) {
    const StepResult small = run_step(2, LossMeanRule::kGlobal, assign, 0, 0, 5, bucket_mib);
    EXPECT_NEAR(small.gradient_norm, whole_buffer.gradient_norm,
                tolerance::kLambF32 * whole_buffer.gradient_norm);
    for (size_t i = 0; i < small.weights.size(); ++i) {
      ASSERT_NEAR(small.weights[i], whole_buffer.weights[i], tolerance::kLambF32) << i;
    }
  }
}

TEST(TrainStep, EmptyMicroBatchAddsNothing) {
  const auto all = rig_sequences(12);
  expect_same_step(run_step(1, LossMeanRule::kGlobal, whole),
                   run_step(2, LossMeanRule::kGlobal, [&](int rank) {
                     return rank == 0 ? Assigned{part_of(all, 0, 12), {}} : Assigned{{}, {}};
                   }));
}

TEST(TrainStep, LocalMeanIsTheMeanOfTheMeansOfRanksAndMicroBatches) {
  const auto all = rig_sequences(12);
  // One micro-batch per rank or all of them on one rank: the same means are averaged.
  const StepResult accumulated = run_step(1, LossMeanRule::kLocal, [&](int) {
    return Assigned{part_of(all, 0, 7), part_of(all, 7, 5)};
  });
  const StepResult spread = run_step(2, LossMeanRule::kLocal, [&](int rank) {
    return rank == 0 ? Assigned{part_of(all, 0, 7)} : Assigned{part_of(all, 7, 5)};
  });
  expect_same_step(accumulated, spread);
  // It differs from the global mean, as the parts have different numbers of masked tokens.
  EXPECT_GT(
      std::abs(accumulated.gradient_norm - run_step(1, LossMeanRule::kGlobal, whole).gradient_norm),
      1e-4);
  // With a single part both are one.
  expect_same_step(run_step(1, LossMeanRule::kLocal, whole),
                   run_step(1, LossMeanRule::kGlobal, whole));
}

TEST(TrainStep, EmptyMicroBatchCountsInTheLocalMeanWithAMeanOfZero) {
  // Without rows it has no gradient, but it is one of the parts that are averaged. That its counts
  // of 0 are divided by as if they were 1 shows in no gradient: GradientScale's own test has that.
  const auto all = rig_sequences(12);
  const StepResult alone =
      run_step(1, LossMeanRule::kLocal, [&](int) { return Assigned{part_of(all, 0, 12)}; });
  const StepResult beside_empty_ones = run_step(2, LossMeanRule::kLocal, [&](int rank) {
    return rank == 0 ? Assigned{{}, part_of(all, 0, 12)} : Assigned{{}, {}};
  });
  EXPECT_NEAR(beside_empty_ones.gradient_norm, alone.gradient_norm / 4,
              tolerance::kModelGradientF32 * std::max(1.0, alone.gradient_norm));
  EXPECT_EQ(beside_empty_ones.state.successful_steps, 1);
}

TEST(TrainStep, TheNextSentenceLossCountsByItsWeight) {
  // The gradient is g + w h, so its squared norm a parabola in w: three points give the others.
  for (const LossMeanRule rule : {LossMeanRule::kGlobal, LossMeanRule::kLocal}) {
    const auto squared_norm = [&](double weight) {
      const double norm = run_step(1, rule, whole, 0, 0, 5, 100, weight).gradient_norm;
      return norm * norm;
    };
    const double at_0 = squared_norm(0);
    const double at_1 = squared_norm(1);
    const double at_2 = squared_norm(2);
    const double h_squared = (at_2 - 2 * at_1 + at_0) / 2;
    const double twice_g_h = at_1 - at_0 - h_squared;
    EXPECT_GT(h_squared, 1e-3);
    for (const double weight : {0.5, 3.0}) {
      EXPECT_NEAR(squared_norm(weight), at_0 + weight * twice_g_h + weight * weight * h_squared,
                  100 * tolerance::kModelGradientF32 * at_2)
          << weight;
    }
  }
}

/// Names of the tensors whose weights a step changes, and of those whose moments it changes, on any
/// of `ranks` ranks. All moments are 0.5 before.
std::set<std::string> changed_by_step(int ranks, double nsp_weight) {
  const int64_t masked = num_masked(rig_sequences(12));
  std::set<std::string> changed;
  std::mutex mutex;
  run_ranks(ranks, [&](Device& device, Collectives& collectives) {
    TrainingRig rig(device, collectives, rig_model(), 0.003, false, nsp_weight);
    float* const m = rig.optimizer.m().as<float>();
    float* const v = rig.optimizer.v().as<float>();
    std::fill_n(m, rig.optimizer.shard_elements(), 0.5f);
    std::fill_n(v, rig.optimizer.shard_elements(), 0.5f);
    const std::vector<float> before = rig.weights();
    const bool has_data = collectives.rank() == 0;
    train_step(rig_step({rig_sequences(has_data ? 12 : 0)}, 12, masked),
               {.nsp_weight = nsp_weight, .num_ranks = ranks}, rig.step_parts());
    const std::vector<float> after = rig.weights();
    const std::lock_guard<std::mutex> lock(mutex);
    for (const ParamInfo& param : rig.table.params) {
      const auto first = static_cast<size_t>(param.offset);
      const auto last = first + static_cast<size_t>(param.elements);
      for (size_t i = first; i < last; ++i) {
        if (after[i] != before[i]) changed.insert(param.name + " weights");
      }
      for (const ShardRange& range : rig.optimizer.shard_ranges()) {
        for (int64_t i = 0; i < range.elements; ++i) {
          const int64_t flat = range.flat_begin + i - param.offset;
          const int64_t at = range.shard_begin + i;
          if (flat < 0 || flat >= param.elements || (m[at] == 0.5f && v[at] == 0.5f)) continue;
          changed.insert(param.name + " moments");
        }
      }
    }
  });
  return changed;
}

TEST(TrainStep, WithoutTheNextSentenceLossItsHeadIsLeftAlone) {
  std::set<std::string> all, without_head;
  for (const ParamInfo& param :
       make_param_table(make_dims(rig_model()), DecayRule::kReference).params) {
    const bool is_of_head = param.name.starts_with("pooler.") || param.name.starts_with("nsp.");
    for (const char* part : {" weights", " moments"}) {
      all.insert(param.name + part);
      if (!is_of_head) without_head.insert(param.name + part);
    }
  }
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(changed_by_step(ranks, 1), all);
    EXPECT_EQ(changed_by_step(ranks, 0), without_head);
  }
}

TEST(TrainStep, NothingButEmptyMicroBatchesHaveNoGradientAtAll) {
  const StepResult result = run_step(2, LossMeanRule::kLocal, [](int) { return Assigned{{}, {}}; });
  EXPECT_EQ(result.gradient_norm, 0);
  EXPECT_EQ(result.state.skipped_steps, 0);
  for (const float weight : result.weights) ASSERT_TRUE(std::isfinite(weight));
}

TEST(TrainStep, DropoutDependsOnSeedStepAndMicroBatchOnly) {
  const auto all = rig_sequences(6);
  const auto twice = [&](int) { return Assigned{all, all}; };
  const auto norm = [&](int64_t step, uint64_t seed, const std::function<Assigned(int)>& assign) {
    return run_step(1, LossMeanRule::kGlobal, assign, 0.3, step, seed).gradient_norm;
  };
  EXPECT_EQ(norm(4, 5, twice), norm(4, 5, twice));
  EXPECT_NE(norm(4, 5, twice), norm(4, 6, twice));
  EXPECT_NE(norm(4, 5, twice), norm(5, 5, twice));
  // The second micro-batch of step 4 has the masks of the first one of a step of single ones, 9:
  // counters follow each other over the run.
  const auto second_only = [&](int) { return Assigned{{}, all}; };
  const auto alone = [&](int) { return Assigned{all}; };
  EXPECT_EQ(norm(4, 5, second_only), norm(9, 5, alone));
  EXPECT_NE(norm(4, 5, second_only), norm(8, 5, alone));
}

TEST(TrainStep, CountsOneSuccessfulStepAndMovesTheWeights) {
  const StepResult result = run_step(2, LossMeanRule::kGlobal, [](int rank) {
    return Assigned{part_of(rig_sequences(12), 6 * rank, 6)};
  });
  EXPECT_EQ(result.state.successful_steps, 1);
  EXPECT_EQ(result.state.skipped_steps, 0);
  run_ranks(1, [&](Device& device, Collectives& collectives) {
    EXPECT_NE(result.weights, TrainingRig(device, collectives, rig_model()).weights());
  });
}

struct Fp8Result {
  std::vector<int> scales;
  LambState state;
};

/// Two steps with fp8; before the second `change` may alter the model's weights.
Fp8Result run_fp8(int ranks, const std::function<Assigned(int rank)>& assign,
                  const std::function<void(TrainingRig&)>& change = {}) {
  Fp8Result result;
  std::mutex mutex;
  run_ranks(ranks, [&](Device& device, Collectives& collectives) {
    TrainingRig rig(device, collectives, rig_model(), 100, /*with_fp8=*/true);
    StepBatch batch = rig_step(assign(collectives.rank()), 12, num_masked(rig_sequences(12)));
    const StepSettings settings{.loss_mean = LossMeanRule::kGlobal, .num_ranks = ranks};
    EXPECT_TRUE(rig.model.needs_scales());
    train_step(batch, settings, rig.step_parts());
    EXPECT_FALSE(rig.model.needs_scales());
    if (change) change(rig);
    ++batch.step;
    train_step(batch, settings, rig.step_parts());
    const std::lock_guard<std::mutex> lock(mutex);
    if (!result.scales.empty()) {
      EXPECT_EQ(rig.model.scale_exponents(), result.scales);
    }
    result = {.scales = rig.model.scale_exponents(), .state = rig.state()};
  });
  return result;
}

TEST(TrainStepFp8, ScalesAreTheSameOnEveryRankAndAtEveryNumberOfRanks) {
  const auto all = rig_sequences(12);
  const Fp8Result alone = run_fp8(1, whole);
  EXPECT_EQ(alone.state.successful_steps, 2);
  EXPECT_EQ(alone.scales.size(), 15u);
  EXPECT_EQ(run_fp8(3, [&](int rank) { return Assigned{part_of(all, 4 * rank, 4)}; }).scales,
            alone.scales);
  EXPECT_EQ(run_fp8(2,
                    [&](int rank) {
                      return rank == 0 ? Assigned{part_of(all, 0, 9), {}}
                                       : Assigned{part_of(all, 9, 1), part_of(all, 10, 2)};
                    })
                .scales.size(),
            15u);
}

TEST(TrainStepFp8, AnInfinityThatSaturationWouldHideSkipsTheUpdate) {
  const Fp8Result result = run_fp8(
      2, [](int) { return Assigned{rig_sequences(6)}; },
      [](TrainingRig& rig) {
        const ParamInfo& bias = rig.table.find("layer.0.feed_forward.in.bias");
        rig.optimizer.weights().as<float>()[bias.offset] = std::numeric_limits<float>::infinity();
      });
  EXPECT_EQ(result.state.skipped_steps, 1);
  EXPECT_EQ(result.state.successful_steps, 1);
}

}  // namespace
}  // namespace bertha::testing

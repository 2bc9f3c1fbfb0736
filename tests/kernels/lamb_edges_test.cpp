#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "kernels/base/tests/matchers.h"
#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/base/tests/validation_checks.h"
#include "kernels/ops/lamb.h"
#include "tests/kernels/lamb_shard.h"

namespace bertha::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Lamb, NormsAreOverwrittenAndZeroForTensorsWithoutASegment) {
  Shard shard(10, 3);
  shard.segments = {{.tensor = 2, .begin = 1, .end = 4}};
  shard.weight = {9, 1, 2, 2, 9, 9, 9, 9, 9, 9};
  shard.state.gradient_multiplier = 0.0f;
  LambMoments moments = shard.moments_args();
  moments.rules.weight_decay = 0.5;
  run_on_cpu(moments);
  EXPECT_EQ(shard.norms, (std::vector<double>{0, 0, 0, 0, 9.0, 2.25}));
}

TEST(Lamb, NormsOfATensorAddUpOverItsSegments) {
  Shard shard(10, 2);
  shard.segments = {{.tensor = 1, .begin = 0, .end = 2},
                    {.tensor = 0, .begin = 3, .end = 5},
                    {.tensor = 1, .begin = 5, .end = 6},
                    {.tensor = 1, .begin = 8, .end = 9}};
  shard.weight = {1, 2, 9, 3, 4, 5, 9, 9, 6, 9};
  shard.state.gradient_multiplier = 0.0f;
  LambMoments moments = shard.moments_args();
  moments.rules.weight_decay = 0.5;
  run_on_cpu(moments);
  EXPECT_EQ(shard.norms, (std::vector<double>{25, 25.0 / 4, 66, 66.0 / 4}));
}

TEST(Lamb, TheTrustRatioNeedsDecayAndBothNorms) {
  for (const TrustRatioCase& c : kTrustRatioCases) {
    Shard shard = trust_ratio_shard(c);
    run_on_cpu(shard.apply_args());
    EXPECT_FLOAT_EQ(shard.weight[0], 10.0f - 0.5f * c.ratio);
    EXPECT_EQ(shard.model_weight[0], shard.weight[0]);
  }
}

/// A shard's own gradient, clipped to the limit; the factor.
float clip(Shard& shard, double limit) {
  float factor = 0.0f;
  const View factor_view(&factor, DType::kF32, {1});
  const ClipFactor find{.gradient_sum_of_squares = shard.sum_view(),
                        .state = shard.state_view(),
                        .factor = factor_view,
                        .max_gradient_norm = limit};
  const ClipLocal scale{.gradient = Shard::of(shard.gradient), .factor = factor_view};
  run_on_cpu(find);
  run_on_cpu(scale);
  return factor;
}

TEST(ClipLocal, ScalesDownToTheLimitAndNeverUp) {
  for (const auto& [limit, want] : {std::pair{1.0, 0.2f}, std::pair{10.0, 1.0f}}) {
    Shard shard(2, 1);
    shard.gradient = {30.0f, 40.0f};
    shard.sum = 2500.0;
    shard.state.loss_scale = 10.0f;  // the norm is 5
    EXPECT_NEAR(clip(shard, limit), want, 1e-6);
    EXPECT_NEAR(shard.gradient[0], 30.0f * want, 1e-6 * 30);  // the published epsilon of the norm
    EXPECT_NEAR(shard.gradient[1], 40.0f * want, 1e-6 * 40);
  }
}

TEST(ClipLocal, LeavesAGradientThatIsNotFiniteAsItIs) {
  Shard shard(2, 1);
  shard.gradient = {kInf, 40.0f};
  shard.sum = std::numeric_limits<double>::infinity();
  EXPECT_EQ(clip(shard, 1.0), 1.0f);
  EXPECT_EQ(shard.gradient, (std::vector<float>{kInf, 40.0f}));
}

TEST(LambContracts, RefuseArgumentsAndNameTheField) {
  Shard shard = ragged_shard();
  std::vector<float> shorter(39999);
  const LambMoments moments = shard.moments_args();
  expect_accepted(moments);
  expect_refused(moments, &LambMoments::v, Shard::of(shorter),
                 {"v is f32 [39999], want f32 [40000]"});
  expect_refused(moments, &LambMoments::norms, View(shard.norms.data(), DType::kF32, {7, 2}),
                 {"norms is f32 [7,2]"});
  expect_refused(moments, &LambMoments::norms, View(shard.norms.data(), DType::kF64, {6, 2}),
                 {"segments name tensor 6, want one below 6"});
  expect_refused<LambMoments>(moments, [](auto& a) { a.rules.epsilon = 0.0; }, {"epsilon = 0"});
  expect_refused<LambMoments>(moments, [](auto& a) { a.rules.beta_2 = 1.0; }, {"beta_2 = 1"});
  expect_refused(shard.apply_args(), &LambApply::state, View(&shard.state, DType::kU8, {8}),
                 {"state is u8 [8]"});
  const LambStep step = shard.step_args();
  expect_accepted(step);
  expect_refused(step, &LambStep::v, Shard::of(shorter),
                 {"lamb_step", "v is f32 [39999], want f32 [40000]"});
  expect_refused(step, &LambStep::norms, View(shard.norms.data(), DType::kF64, {6, 2}),
                 {"segments name tensor 6, want one below 6"});
  const AdamWStep adamw = shard.adamw_args();
  expect_accepted(adamw);
  expect_refused(adamw, &AdamWStep::m, Shard::of(shorter),
                 {"adamw_step", "m is f32 [39999], want f32 [40000]"});
  expect_refused(adamw, &AdamWStep::model_weight,
                 View(shard.model_weight.data(), DType::kBF16, {40000}),
                 {"model_weight is bf16 [40000], want f32 [40000]"});
  expect_refused<AdamWStep>(adamw, [](auto& a) { a.rules.weight_decay = -1.0; },
                            {"weight_decay = -1"});
  const LambPrepare prepare = shard.prepare_args();
  expect_refused<LambPrepare>(prepare, [](auto& a) { a.rules.schedule.total_steps = 0; },
                              {"schedule.total_steps = 0"});
  expect_refused(prepare, &LambPrepare::gradient_sum_of_squares, View(nullptr, DType::kF64, {1}),
                 {"gradient_sum_of_squares has no data"});
  shard.segments[3].begin -= 20;
  expect_refused<LambApply>(shard.apply_args(), [](auto&) {},
                            {"want them ascending, without overlap"});
  expect_refused<AdamWStep>(shard.adamw_args(), [](auto&) {},
                            {"want them ascending, without overlap"});
}

}  // namespace
}  // namespace bertha::testing

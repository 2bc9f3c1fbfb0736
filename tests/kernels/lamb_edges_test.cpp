#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/operations.h"
#include "kernels/ops/lamb.h"
#include "tests/kernels/lamb_shard.h"

namespace bertha::testing {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Lamb, NormsAreOverwrittenAndZeroForTensorsWithoutASegment) {
  Shard shard(10, 3);
  shard.segments = {{.tensor = 2, .begin = 1, .end = 4}};
  shard.weight = {9, 1, 2, 2, 9, 9, 9, 9, 9, 9};
  shard.state.gradient_multiplier = 0.0f;
  LambMoments moments = shard.moments_args();
  moments.weight_decay = 0.5;
  WorkerPool pool(1);
  run_cpu(pool, moments);
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
  moments.weight_decay = 0.5;
  validate(moments);
  WorkerPool pool(1);
  run_cpu(pool, moments);
  EXPECT_EQ(shard.norms, (std::vector<double>{25, 25.0 / 4, 66, 66.0 / 4}));
}

TEST(Lamb, TheTrustRatioNeedsDecayAndBothNorms) {
  for (const TrustRatioCase& c : kTrustRatioCases) {
    Shard shard = trust_ratio_shard(c);
    WorkerPool pool(1);
    LambApply apply = shard.apply_args();
    apply.trust_ratio = c.is_on;
    run_cpu(pool, apply);
    EXPECT_FLOAT_EQ(shard.weight[0], 10.0f - 0.5f * c.ratio);
    EXPECT_EQ(shard.model_weight[0], shard.weight[0]);
  }
}

TEST(ClipLocal, ScalesDownToTheLimitAndNeverUp) {
  for (const auto& [limit, want] : {std::pair{1.0, 0.2f}, std::pair{10.0, 1.0f}}) {
    Shard shard(2, 1);
    shard.gradient = {30.0f, 40.0f};
    shard.sum = 2500.0;
    shard.state.loss_scale = 10.0f;  // the norm is 5
    const ClipLocal args{.gradient = Shard::of(shard.gradient),
                         .gradient_sum_of_squares = shard.sum_view(),
                         .state = shard.state_view(),
                         .max_gradient_norm = limit};
    validate(args);
    WorkerPool pool(1);
    run_cpu(pool, args);
    EXPECT_NEAR(shard.gradient[0], 30.0f * want, 1e-6 * 30);  // the published epsilon of the norm
    EXPECT_NEAR(shard.gradient[1], 40.0f * want, 1e-6 * 40);
  }
}

TEST(ClipLocal, LeavesAGradientThatIsNotFiniteAsItIs) {
  Shard shard(2, 1);
  shard.gradient = {kInfinity, 40.0f};
  shard.sum = std::numeric_limits<double>::infinity();
  WorkerPool pool(1);
  run_cpu(pool, ClipLocal{.gradient = Shard::of(shard.gradient),
                          .gradient_sum_of_squares = shard.sum_view(),
                          .state = shard.state_view()});
  EXPECT_EQ(shard.gradient, (std::vector<float>{kInfinity, 40.0f}));
}

TEST(LambContracts, RefuseArgumentsAndNameTheField) {
  const auto message = [](const auto& args) -> std::string {
    try {
      validate(args);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  Shard shard = ragged_shard();
  std::vector<float> shorter(39999);
  EXPECT_EQ(message(shard.moments_args()), "accepted");
  LambMoments moments = shard.moments_args();
  moments.v = Shard::of(shorter);
  EXPECT_THAT(message(moments), HasSubstr("v is f32 [39999], want f32 [40000]"));
  moments = shard.moments_args();
  moments.norms = View(shard.norms.data(), DType::kF32, {7, 2});
  EXPECT_THAT(message(moments), HasSubstr("norms is f32 [7,2]"));
  moments = shard.moments_args();
  moments.norms = View(shard.norms.data(), DType::kF64, {6, 2});
  EXPECT_THAT(message(moments), HasSubstr("segments name tensor 6, want one below 6"));
  moments = shard.moments_args();
  moments.epsilon = 0.0;
  EXPECT_THAT(message(moments), HasSubstr("epsilon = 0"));
  moments = shard.moments_args();
  moments.beta_2 = 1.0;
  EXPECT_THAT(message(moments), HasSubstr("beta_2 = 1"));
  LambApply apply = shard.apply_args();
  apply.state = View(&shard.state, DType::kU8, {8});
  EXPECT_THAT(message(apply), HasSubstr("state is u8 [8]"));
  shard.segments[3].begin -= 20;
  EXPECT_THAT(message(shard.apply_args()), HasSubstr("want them ascending, without overlap"));
  LambPrepare prepare = shard.prepare_args();
  prepare.schedule.total_steps = 0;
  EXPECT_THAT(message(prepare), HasSubstr("schedule.total_steps = 0"));
  prepare = shard.prepare_args();
  prepare.gradient_sum_of_squares = View(nullptr, DType::kF64, {1});
  EXPECT_THAT(message(prepare), HasSubstr("gradient_sum_of_squares has no data"));
}

}  // namespace
}  // namespace bertha::testing

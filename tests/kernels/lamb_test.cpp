#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/reductions.h"
#include "tests/kernels/lamb_shard.h"

namespace bertha::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The same update in double from the formulas, without blocks, lanes or rounding.
struct Reference {
  std::vector<double> w, m, v, u;
  double loss_scale = 8, beta_1 = 0.8, beta_2 = 0.97, epsilon = 1e-3, decay = 0.05, base = 0.02;
  double max_norm = 3.0;

  explicit Reference(const Shard& shard)
      : w(shard.weight.begin(), shard.weight.end()), m(w.size()), v(w.size()), u(w.size()) {}

  void step(const Shard& shard, int t) {
    double sum = 0;
    for (const float g : shard.gradient) sum += (g / loss_scale) * (g / loss_scale);
    const double clip = std::min(1.0, max_norm / (std::sqrt(sum) + 1e-6));
    const double rate = base * (t <= 2 ? (t - 1) / (2.0 + 1e-6) : 1 - (t - 1) / 9.0);
    std::vector<double> w2(7), u2(7);
    for (const LambSegment& segment : shard.segments) {
      for (auto i = static_cast<size_t>(segment.begin); i < static_cast<size_t>(segment.end); ++i) {
        const double g = shard.gradient[i] / loss_scale * clip;
        m[i] = beta_1 * m[i] + (1 - beta_1) * g;
        v[i] = beta_2 * v[i] + (1 - beta_2) * g * g;
        u[i] = m[i] / (1 - std::pow(beta_1, t)) /
                   (std::sqrt(v[i] / (1 - std::pow(beta_2, t))) + epsilon) +
               (segment.decay ? decay * w[i] : 0.0);
        w2[static_cast<size_t>(segment.tensor)] += w[i] * w[i];
        u2[static_cast<size_t>(segment.tensor)] += u[i] * u[i];
      }
    }
    for (const LambSegment& segment : shard.segments) {
      const auto tensor = static_cast<size_t>(segment.tensor);
      const double ratio = segment.decay ? std::sqrt(w2[tensor]) / std::sqrt(u2[tensor]) : 1.0;
      for (auto i = static_cast<size_t>(segment.begin); i < static_cast<size_t>(segment.end); ++i) {
        w[i] -= rate * ratio * u[i];
      }
    }
  }
};

void run_step(Shard& shard, const Reference& reference, int threads = 2) {
  const SumOfSquares sum{.values = Shard::of(shard.gradient), .result = shard.sum_view()};
  LambPrepare prepare = shard.prepare_args();
  prepare.rules.schedule = {.base = reference.base, .warmup_steps = 2, .total_steps = 9};
  prepare.rules.beta_1 = reference.beta_1;
  prepare.rules.beta_2 = reference.beta_2;
  prepare.rules.max_gradient_norm = reference.max_norm;
  LambMoments moments = shard.moments_args();
  moments.rules.beta_1 = reference.beta_1;
  moments.rules.beta_2 = reference.beta_2;
  moments.rules.epsilon = reference.epsilon;
  moments.rules.weight_decay = reference.decay;
  run_on_cpu(sum, threads);
  run_on_cpu(prepare, threads);
  run_on_cpu(moments, threads);
  run_on_cpu(shard.apply_args(), threads);
}

TEST(Lamb, SixStepsOfRaggedSegmentsEqualTheFormulasInDouble) {
  Shard shard = ragged_shard();
  shard.state.loss_scale = 8.0f;
  Reference reference(shard);
  for (int step = 1; step <= 6; ++step) {
    // Step 3 is small enough to stay unclipped.
    fill_random(shard.gradient, 100 + static_cast<uint32_t>(step), step == 3 ? 0.01f : 2.0f);
    run_step(shard, reference);
    reference.step(shard, step);
    expect_close(shard.m, reference.m, shard, "m", step);
    expect_close(shard.v, reference.v, shard, "v", step);
    expect_close(shard.update, reference.u, shard, "u", step);
    expect_close(shard.weight, reference.w, shard, "w", step);
    EXPECT_EQ(step == 3, shard.state.gradient_multiplier == 0.125f);
  }
  EXPECT_EQ(shard.state.successful_steps, 6);
}

TEST(Lamb, ElementsBetweenSegmentsAreLeftAlone) {
  Shard shard = ragged_shard();
  const std::vector<float> before = shard.weight;
  for (auto* values : {&shard.m, &shard.v, &shard.update, &shard.model_weight}) {
    std::fill(values->begin(), values->end(), 5.0f);
  }
  fill_random(shard.gradient, 3, 1.0f);
  const Reference reference(shard);
  run_step(shard, reference);
  std::vector<bool> covered(before.size());
  for (const LambSegment& segment : shard.segments) {
    for (int64_t i = segment.begin; i < segment.end; ++i) covered[static_cast<size_t>(i)] = true;
  }
  for (size_t i = 0; i < before.size(); ++i) {
    if (covered[i]) {
      EXPECT_EQ(shard.model_weight[i], shard.weight[i]);
      continue;
    }
    ASSERT_EQ(shard.weight[i], before[i]);
    ASSERT_EQ(shard.m[i], 5.0f);
    ASSERT_EQ(shard.v[i], 5.0f);
    ASSERT_EQ(shard.update[i], 5.0f);
    ASSERT_EQ(shard.model_weight[i], 5.0f);
  }
}

TEST(LambStep, HasTheBitsOfItsTwoOperations) {
  for (Shard one : adamw_shards()) {
    for (const int skip : {0, 1}) {
      one.state.skip = skip;
      Shard two = one;
      LambMoments moments = two.moments_args();
      moments.rules = kAdamWRules;
      run_on_cpu(moments);
      run_on_cpu(two.apply_args());
      run_on_cpu(one.step_args());
      EXPECT_EQ(one.weight, two.weight);
      EXPECT_EQ(one.model_weight, two.model_weight);
      EXPECT_EQ(one.m, two.m);
      EXPECT_EQ(one.v, two.v);
      EXPECT_EQ(one.norms, two.norms);
    }
  }
}

TEST(Lamb, ResultsDoNotDependOnTheNumberOfThreads) {
  Shard one = ragged_shard();
  Shard three = ragged_shard();
  fill_random(one.gradient, 4, 1.0f);
  three.gradient = one.gradient;
  const Reference reference(one);
  for (int step = 0; step < 3; ++step) {
    run_step(one, reference, 1);
    run_step(three, reference, 3);
  }
  EXPECT_EQ(one.weight, three.weight);
  EXPECT_EQ(one.update, three.update);
  EXPECT_EQ(one.norms, three.norms);
}

TEST(Lamb, AGradientThatIsNotFiniteChangesOnlyTheState) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    Shard shard = ragged_shard();
    const Reference reference(shard);
    fill_random(shard.gradient, 6, 1.0f);
    run_step(shard, reference);
    const Shard before = shard;
    shard.gradient[777] = bad;
    run_step(shard, reference);
    EXPECT_EQ(shard.weight, before.weight);
    EXPECT_EQ(shard.m, before.m);
    EXPECT_EQ(shard.v, before.v);
    EXPECT_EQ(shard.update, before.update);
    EXPECT_EQ(shard.state.skip, 1);
    EXPECT_EQ(shard.state.successful_steps, 1);
    EXPECT_EQ(shard.state.skipped_steps, 1);
    EXPECT_EQ(shard.state.learning_rate, before.state.learning_rate);
    for (const LambSegment& segment : shard.segments) {
      const auto last = static_cast<size_t>(segment.end - 1);
      EXPECT_EQ(shard.model_weight[last], shard.weight[last]);
    }
  }
}

}  // namespace
}  // namespace bertha::testing

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/base/tests/run_on_cpu.h"
#include "kernels/ops/lamb.h"
#include "tests/kernels/lamb_shard.h"

namespace bertha::testing {
namespace {

/// LAMB's two operations with a ratio of 1.
void run_two_passes(Shard& shard) {
  LambMoments moments = shard.moments_args();
  moments.rules = kAdamWRules;
  const std::vector<LambSegment> segments = without_decay(shard.segments);
  LambApply apply = shard.apply_args();
  apply.segments = segments;
  run_on_cpu(moments);
  run_on_cpu(apply);
}

/// AdamW in double, from the formulas.
struct AdamWReference {
  std::vector<double> w, m, v;

  explicit AdamWReference(const Shard& shard)
      : w(shard.weight.begin(), shard.weight.end()), m(w.size()), v(w.size()) {}

  void step(const Shard& shard, int t) {
    const LambMomentsRules& rules = kAdamWRules;
    for (const LambSegment& segment : shard.segments) {
      for (auto i = static_cast<size_t>(segment.begin); i < static_cast<size_t>(segment.end); ++i) {
        const double g = 0.125 * shard.gradient[i];
        m[i] += (1 - rules.beta_1) * (g - m[i]);
        v[i] += (1 - rules.beta_2) * (g * g - v[i]);
        const double m_hat = m[i] / (1 - std::pow(rules.beta_1, t));
        const double v_hat = v[i] / (1 - std::pow(rules.beta_2, t));
        const double decayed = segment.decay ? w[i] * (1 - 0.02 * rules.weight_decay) : w[i];
        w[i] = decayed - 0.02 * m_hat / (std::sqrt(v_hat) + rules.epsilon);
      }
    }
  }
};

TEST(AdamW, SixStepsOfRaggedSegmentsEqualTheFormulasInDouble) {
  Shard shard = ragged_shard();
  AdamWReference reference(shard);
  for (int t = 1; t <= 6; ++t) {
    fill_random(shard.gradient, 100 + static_cast<uint32_t>(t), t == 3 ? 0.1f : 8.0f);
    set_update(shard.state, t);
    run_on_cpu(shard.adamw_args());
    reference.step(shard, t);
    expect_close(shard.m, reference.m, shard, "m", t);
    expect_close(shard.v, reference.v, shard, "v", t);
    expect_close(shard.weight, reference.w, shard, "w", t);
  }
}

TEST(AdamW, HasTheBitsOfLambsTwoOperationsWithARatioOf1) {
  for (Shard& shard : adamw_shards()) {
    SCOPED_TRACE(shard.weight.size());
    Shard two_passes = shard;
    run_on_cpu(shard.adamw_args());
    run_two_passes(two_passes);
    EXPECT_EQ(shard.weight, two_passes.weight);
    EXPECT_EQ(shard.m, two_passes.m);
    EXPECT_EQ(shard.v, two_passes.v);
    EXPECT_EQ(shard.model_weight, two_passes.model_weight);
  }
}

TEST(AdamW, ChangesEveryElementOfASegmentAndNoneBetween) {
  Shard shard = before_fifth_update(ragged_shard());
  const Shard before = shard;
  run_on_cpu(shard.adamw_args());
  std::vector<bool> is_covered(before.weight.size());
  for (const LambSegment& segment : shard.segments) {
    std::fill(is_covered.begin() + segment.begin, is_covered.begin() + segment.end, true);
  }
  for (size_t i = 0; i < is_covered.size(); ++i) {
    ASSERT_EQ(shard.weight[i] != before.weight[i], is_covered[i]) << i;
    ASSERT_EQ(shard.m[i] != before.m[i], is_covered[i]) << i;
    ASSERT_EQ(shard.v[i] != before.v[i], is_covered[i]) << i;
    ASSERT_EQ(shard.model_weight[i], is_covered[i] ? shard.weight[i] : 5.0f) << i;
  }
}

TEST(AdamW, ASkippedStepOnlyCopiesTheWeights) {
  for (Shard& shard : adamw_shards()) {
    SCOPED_TRACE(shard.weight.size());
    std::fill(shard.gradient.begin(), shard.gradient.end(),
              std::numeric_limits<float>::quiet_NaN());
    shard.state.skip = 1;
    const Shard before = shard;
    run_on_cpu(shard.adamw_args());
    EXPECT_EQ(shard.weight, before.weight);
    EXPECT_EQ(shard.m, before.m);
    EXPECT_EQ(shard.v, before.v);
    for (const LambSegment& segment : shard.segments) {
      for (auto i = static_cast<size_t>(segment.begin); i < static_cast<size_t>(segment.end); ++i) {
        ASSERT_EQ(shard.model_weight[i], shard.weight[i]) << i;
      }
    }
  }
}

TEST(AdamW, ResultsDoNotDependOnTheNumberOfThreads) {
  Shard one = before_fifth_update(ragged_shard());
  Shard three = one;
  run_on_cpu(one.adamw_args(), 1);
  run_on_cpu(three.adamw_args(), 3);
  EXPECT_EQ(one.weight, three.weight);
  EXPECT_EQ(one.m, three.m);
  EXPECT_EQ(one.v, three.v);
}

}  // namespace
}  // namespace bertha::testing

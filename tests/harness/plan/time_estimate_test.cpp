#include "harness/plan/cost_plan.h"

#include <gtest/gtest.h>

#include "harness/plan/seq_lengths.h"
#include "tests/support/load_settings.h"
#include "tests/support/source_dir.h"

namespace bertha {
namespace {

PlanRequest large(int64_t ranks, bool fp8) {
  PlanRequest request{
      .config =
          test::load_settings({std::string(kSourceDir) + "/configs/models/large.yaml"}).config,
      .ranks = ranks,
      .io = DType::kBF16,
      .fp8 = fp8,
      .on_gpu = true};
  request.config.train.global_batch_seqs = 96 * ranks;
  request.config.train.max_steps = 100;
  const LengthMeans means = means_of(published_lengths(), 512);
  request.mean_seq_tokens = means.tokens;
  request.mean_squared_tokens = means.squared_tokens;
  request.mean_masked_per_seq = kMaskedShare * means.tokens;
  return request;
}

/// BERT-large, 96 sequences of Wikipedia's lengths on one H200: kernels/measured/step.md.
TEST(TimeEstimate, IsWhatWasMeasured) {
  const PlanRequest bf16 = large(1, false), fp8 = large(1, true);
  EXPECT_NEAR(estimate_time(bf16, make_cost_plan(bf16), 0).step_ms, 86.4, 0.03 * 86.4);
  EXPECT_NEAR(estimate_time(fp8, make_cost_plan(fp8), 0).step_ms, 61.0, 0.03 * 61.0);
}

TEST(TimeEstimate, ARunIsItsStepsAndEvaluations) {
  const PlanRequest request = large(8, false);
  const CostPlan cost = make_cost_plan(request);
  const TimeEstimate time = estimate_time(request, cost, 10'000);
  EXPECT_NEAR(time.seqs_per_second * time.step_ms, 1e3 * 8 * 96, 1e-6 * 1e3 * 8 * 96);
  const double steps = 1e-3 * time.step_ms * 100;
  const double evaluations =
      static_cast<double>(cost.run.num_evals()) * 10'000 / time.seqs_per_second / 3;
  EXPECT_NEAR(time.seconds, steps + evaluations, 1e-3 * time.seconds);
  EXPECT_GT(cost.run.num_evals(), 0);
}

}  // namespace
}  // namespace bertha

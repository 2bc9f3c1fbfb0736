#include "harness/mlperf/curve_doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "harness/mlperf/published_curves.h"

namespace bertha {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

RunIdentity bert_large() {
  return {.model = "bert-large",
          .parameters = 336'232'258,
          .vocab_size = 30522,
          .global_batch_seqs = 448,
          .target_accuracy = 0.72,
          .start_weights = "ckpt/start",
          .constant_answer_accuracy = 0.052};
}

RunIdentity small_model() {
  return {.model = "tiny",
          .parameters = 500'000,
          .vocab_size = 4096,
          .global_batch_seqs = 32,
          .target_accuracy = 0.12,
          .constant_answer_accuracy = 0.0394};
}

EvalRecord eval_of(double accuracy, double mlm_loss, double nsp_accuracy) {
  EvalRecord eval;
  eval.mlm_accuracy = accuracy;
  eval.mlm_loss = mlm_loss;
  eval.nsp_accuracy = nsp_accuracy;
  return eval;
}

/// Evaluations every `samples_per_eval` samples.
Metrics run_of(RunIdentity run, std::vector<EvalRecord> evals, int64_t samples_per_eval = 150'000) {
  Metrics metrics;
  metrics.run = std::move(run);
  for (EvalRecord& eval : evals) {
    eval.step = static_cast<int64_t>(metrics.evals.size() + 1) * 335;
    eval.samples = static_cast<int64_t>(metrics.evals.size() + 1) * samples_per_eval;
    metrics.evals.push_back(eval);
  }
  return metrics;
}

/// BERT-large's, from accuracies alone; its loss falls as they rise.
Metrics large_run(const std::vector<double>& accuracies) {
  std::vector<EvalRecord> evals;
  for (const double accuracy : accuracies) {
    evals.push_back(eval_of(accuracy, 1.3 + 7 * (0.72 - accuracy), 0.97));
  }
  return run_of(bert_large(), std::move(evals));
}

std::vector<std::string> shapes(const Metrics& metrics) {
  std::vector<std::string> names;
  for (const CurveRemark& remark : examine_curve(metrics)) names.push_back(remark.shape);
  return names;
}

StepRecord step_of(int64_t number, double mlm_loss, double loss_scale = 1) {
  StepRecord step;
  step.step = number;
  step.mlm_loss = mlm_loss;
  step.loss_scale = loss_scale;
  step.skipped_steps = number;
  return step;
}

TEST(CurveDoctor, NothingIsWrongWithAnyPublishedRunAtAnyPoint) {
  for (const PublishedCurves& curves : all_published_curves()) {
    for (const std::vector<double>& run : curves.runs) {
      for (size_t evals = 0; evals <= run.size(); ++evals) {
        Metrics metrics = large_run({run.begin(), run.begin() + static_cast<ptrdiff_t>(evals)});
        metrics.steps = {step_of(1, 4.05), step_of(50, 3.7)};
        EXPECT_THAT(shapes(metrics), IsEmpty()) << curves.name << " after " << evals;
      }
    }
  }
}

TEST(CurveDoctor, NothingIsWrongWithTheQuickstart) {
  // launch/quickstart on WordNet's glosses, from random weights
  Metrics metrics = run_of(small_model(),
                           {eval_of(0.0460, 6.906, 0.5945), eval_of(0.0833, 6.600, 0.5945),
                            eval_of(0.1048, 6.470, 0.5915), eval_of(0.1245, 6.420, 0.5945)},
                           6'400);
  metrics.steps = {step_of(1, 8.33), step_of(50, 7.95), step_of(100, 6.9)};
  EXPECT_THAT(shapes(metrics), IsEmpty());
  EXPECT_EQ(curve_report("run", examine_curve(metrics)), "");
  metrics.steps = {step_of(1, 8.3, 0.5)};
  EXPECT_THAT(curve_report("run", examine_curve(metrics)),
              testing::StartsWith("run: curve: collapsing loss scale: the loss scale has"));
}

TEST(CurveDoctor, ALossFarAboveGuessingIsDivergence) {
  Metrics metrics = run_of(small_model(), {});
  metrics.steps.resize(1);
  StepRecord& last = metrics.steps.back();
  last.step = 40;
  for (const double healthy : {0.0, 8.32, 9.5, 16.6}) {  // ln 4096 = 8.32
    last.mlm_loss = healthy;
    EXPECT_EQ(divergence(metrics), std::nullopt) << healthy;
  }
  for (const double high : {16.7, 4108.0, std::numeric_limits<double>::infinity()}) {
    last.mlm_loss = high;
    ASSERT_TRUE(divergence(metrics)) << high;
    EXPECT_THAT(examine_curve(metrics).back().text,
                testing::AllOf(HasSubstr("step 40 "), HasSubstr("guessing costs 8.32"),
                               HasSubstr("optimizer.max_gradient_norm")));
  }
}

TEST(CurveDoctor, AnEmptyRunAndValuesThatAreNotFiniteAreNoShape) {
  EXPECT_THAT(shapes(Metrics()), IsEmpty());
  Metrics metrics = run_of(bert_large(), std::vector(5, eval_of(kNan, kNan, kNan)));
  metrics.steps = std::vector(20, step_of(1, kNan, kNan));
  EXPECT_THAT(shapes(metrics), IsEmpty());
}

TEST(CurveDoctor, AccuracyOfTheStartCheckpointMeansUntouchedWeights) {
  EXPECT_THAT(shapes(large_run({0.3409})), IsEmpty());
  EXPECT_THAT(shapes(large_run({0.3409, 0.3412})), ElementsAre("untouched weights"));
  EXPECT_THAT(untouched_weights(large_run({0.3409, 0.3407, 0.3412}))->text,
              HasSubstr("stay at 0.3412, what the start checkpoint scores"));
  EXPECT_THAT(shapes(large_run({0.3409, 0.3412, 0.36})), IsEmpty());  // they move now
}

TEST(CurveDoctor, EvaluationsThatRepeatEachOtherMeanUntouchedWeightsInAnyModel) {
  const EvalRecord same = eval_of(0.021, 8.31, 0.5);
  EXPECT_THAT(shapes(run_of(small_model(), {same, same})), IsEmpty());
  EXPECT_THAT(shapes(run_of(small_model(), {same, same, same})), ElementsAre("untouched weights"));
  EXPECT_THAT(shapes(run_of(small_model(), {same, same, eval_of(0.021, 8.2, 0.5)})), IsEmpty());
}

TEST(CurveDoctor, ALongStayAt062IsThePlateauOfCopiedShards) {
  const std::vector<double> rise = {0.372, 0.401, 0.455, 0.57};
  std::vector<double> curve = rise;
  for (const double accuracy : {0.615, 0.622, 0.626}) {
    EXPECT_THAT(shapes(large_run(curve)), IsEmpty());
    curve.push_back(accuracy);
  }
  EXPECT_THAT(shapes(large_run(curve)), ElementsAre("plateau at 0.62"));
  EXPECT_THAT(plateau_at_062(large_run(curve))->text, HasSubstr("0.6260 for 300k samples"));
  curve.push_back(0.70);
  EXPECT_THAT(shapes(large_run(curve)), IsEmpty());

  Metrics small = large_run({0.61, 0.62, 0.625, 0.626});
  small.run = small_model();
  EXPECT_THAT(shapes(small), IsEmpty());  // another model may well end there
}

TEST(CurveDoctor, TheLossOfRandomWeightsMeansThatTheCheckpointWasNotLoaded) {
  Metrics metrics = large_run({});
  metrics.steps = {step_of(1, 10.41), step_of(50, 9.2)};
  EXPECT_THAT(shapes(metrics), ElementsAre("checkpoint not loaded"));
  EXPECT_THAT(checkpoint_not_loaded(metrics)->text, HasSubstr("ln 30522 = 10.33"));
  EXPECT_THAT(checkpoint_not_loaded(metrics)->text, HasSubstr("ckpt/start"));

  Metrics from_scratch = metrics;
  from_scratch.run.start_weights = "";
  EXPECT_THAT(shapes(from_scratch), IsEmpty());
  Metrics resumed = metrics;
  resumed.run.first_step = 400;
  EXPECT_THAT(shapes(resumed), IsEmpty());
  metrics.steps.front().mlm_loss = 4.05;
  EXPECT_THAT(shapes(metrics), IsEmpty());
}

TEST(CurveDoctor, TheScoreOfTheMostFrequentTokenMeansWordFrequenciesOnly) {
  std::vector<EvalRecord> evals = {eval_of(0.0512, 7.25, 0.55), eval_of(0.0521, 7.22, 0.56),
                                   eval_of(0.0519, 7.21, 0.55), eval_of(0.0523, 7.22, 0.57)};
  EXPECT_THAT(shapes(run_of(bert_large(), evals)), ElementsAre("word frequencies only"));
  EXPECT_THAT(word_frequencies_only(run_of(bert_large(), evals))->text, HasSubstr("7.22"));
  evals.back().mlm_loss = 7.05;  // it falls
  EXPECT_THAT(shapes(run_of(bert_large(), evals)), IsEmpty());
  evals.back().mlm_loss = 7.22;
  evals.back().mlm_accuracy = 0.08;  // it knows more
  EXPECT_THAT(shapes(run_of(bert_large(), evals)), IsEmpty());
  evals.back().mlm_accuracy = 0.03;  // it does not know that much
  EXPECT_THAT(shapes(run_of(bert_large(), evals)), IsEmpty());
  evals.pop_back();
  EXPECT_THAT(shapes(run_of(bert_large(), evals)), IsEmpty());
}

TEST(CurveDoctor, NextSentencesWithoutMaskedTokensAreNamedInsteadOfWordFrequencies) {
  std::vector<EvalRecord> evals = {eval_of(0.0512, 7.25, 0.93), eval_of(0.0521, 7.22, 0.95),
                                   eval_of(0.0519, 7.21, 0.96), eval_of(0.0523, 7.22, 0.97)};
  EXPECT_THAT(shapes(run_of(bert_large(), evals)), ElementsAre("next sentences only"));
  evals.back().nsp_accuracy.reset();
  EXPECT_THAT(shapes(run_of(bert_large(), evals)), ElementsAre("word frequencies only"));
  evals.back().mlm_accuracy = 0.2;
  EXPECT_THAT(shapes(run_of(bert_large(), evals)), IsEmpty());
}

TEST(CurveDoctor, TheScoreOfCopiedWordsMeansThatContextIsNotUsed) {
  // bert-medium from random weights, samples 920k to 1.08M, as measured.
  RunIdentity medium = small_model();
  medium.constant_answer_accuracy = 0.052;
  std::vector<EvalRecord> evals = {eval_of(0.1530, 6.156, 0.937), eval_of(0.1532, 6.139, 0.930),
                                   eval_of(0.1527, 6.127, 0.938), eval_of(0.1537, 6.114, 0.941)};
  EXPECT_THAT(shapes(run_of(medium, evals)), ElementsAre("context not used"));
  EXPECT_THAT(context_not_used(run_of(medium, evals))->text, HasSubstr("nsp_weight"));
  for (EvalRecord& eval : evals) eval.nsp_accuracy = 0.55;
  EXPECT_THAT(context_not_used(run_of(medium, evals))->text, Not(HasSubstr("nsp_weight")));
  evals.back().mlm_accuracy = 0.17;  // it knows more
  EXPECT_THAT(shapes(run_of(medium, evals)), IsEmpty());
  evals.back().mlm_accuracy = 0.11;  // it does not copy yet
  EXPECT_THAT(shapes(run_of(medium, evals)), IsEmpty());
  evals.back() = eval_of(0.1540, 5.9, 0.55);  // it falls
  EXPECT_THAT(shapes(run_of(medium, evals)), IsEmpty());
}

TEST(CurveDoctor, ALossScaleBelowOneOrFallingWithoutEndIsCollapsing) {
  Metrics metrics;
  for (int64_t i = 1; i <= 12; ++i) metrics.steps.push_back(step_of(i, 4, std::ldexp(1, 20 - i)));
  EXPECT_THAT(shapes(metrics), IsEmpty());  // a start at 2^20 finds its scale so
  for (int64_t i = 13; i <= 17; ++i) metrics.steps.push_back(step_of(i, 4, std::ldexp(1, 20 - i)));
  EXPECT_THAT(shapes(metrics), ElementsAre("collapsing loss scale"));
  EXPECT_THAT(collapsing_loss_scale(metrics)->text, HasSubstr("8.0e0 with 17 updates skipped"));
  metrics.steps.push_back(step_of(18, 4, 8));  // it holds
  EXPECT_THAT(shapes(metrics), IsEmpty());
  metrics.steps = {step_of(1, 4, 0.5)};
  EXPECT_THAT(shapes(metrics), ElementsAre("collapsing loss scale"));
  metrics.steps = std::vector(30, step_of(1, 4, 1));  // bf16 has none
  EXPECT_THAT(shapes(metrics), IsEmpty());
}

TEST(CurveDoctor, SaturationThatLastsIsNamed) {
  Metrics metrics;
  for (int64_t i = 1; i <= 40; ++i) {
    metrics.steps.push_back(step_of(i, 4));
    metrics.steps.back().fp8_saturated = i % 3 == 0 ? 1e-3 : 1e-7;  // now and then
  }
  EXPECT_THAT(shapes(metrics), IsEmpty());
  for (size_t i = 30; i < 40; ++i) metrics.steps[i].fp8_saturated = 2e-5;
  EXPECT_THAT(shapes(metrics), ElementsAre("fp8 saturation"));
  EXPECT_THAT(saturation(metrics)->text, HasSubstr("at step 40"));
  metrics.steps.erase(metrics.steps.begin(), metrics.steps.begin() + 30);  // too few to tell
  EXPECT_THAT(shapes(metrics), IsEmpty());
}

}  // namespace
}  // namespace bertha

#include "harness/train/curve_checks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

constexpr int64_t kVocabSize = 30522;
const double kGuessing = std::log(static_cast<double>(kVocabSize));

StepRecord step(int64_t number, double loss, double loss_scale = 1024) {
  StepRecord record;
  record.step = number;
  record.mlm_loss = loss;
  record.loss_scale = loss_scale;
  return record;
}

EvalRecord eval(int64_t number, double accuracy, double loss) {
  EvalRecord record;
  record.step = number;
  record.mlm_accuracy = accuracy;
  record.mlm_loss = loss;
  return record;
}

TEST(CurveChecks, ACheckpointThatWasNotLoadedIsNamed) {
  CurveChecks checks(kVocabSize, 0, "weights/model");
  const auto said = checks.after_step(step(1, kGuessing * 1.02));
  EXPECT_THAT(said, ElementsAre(StartsWith("curve: checkpoint not loaded: ")));
  EXPECT_THAT(said.front(), HasSubstr("starts from weights/model"));
}

TEST(CurveChecks, ALossOfRandomWeightsIsNoFaultOfOthers) {
  EXPECT_THAT(CurveChecks(kVocabSize, 0, "").after_step(step(1, kGuessing)), IsEmpty());
  EXPECT_THAT(CurveChecks(kVocabSize, 40, "weights").after_step(step(41, kGuessing)), IsEmpty());
  EXPECT_THAT(CurveChecks(kVocabSize, 0, "weights").after_step(step(1, 2.5)), IsEmpty());
  CurveChecks later(kVocabSize, 0, "weights");
  later.after_step(step(1, 2.5));
  EXPECT_THAT(later.after_step(step(2, kGuessing)), IsEmpty());
}

TEST(CurveChecks, ALossWorseThanGuessingIsNamedOnce) {
  CurveChecks checks(kVocabSize, 0, "");
  EXPECT_THAT(checks.after_step(step(1, 1.9 * kGuessing)), IsEmpty());
  EXPECT_THAT(checks.after_step(step(2, 2.1 * kGuessing)),
              ElementsAre(StartsWith("curve: divergence: the masked-token loss of step 2 is ")));
  EXPECT_THAT(checks.after_step(step(3, 2.2 * kGuessing)), IsEmpty());
  EXPECT_THAT(CurveChecks(kVocabSize, 0, "").after_step(step(1, NAN)), IsEmpty());
}

TEST(CurveChecks, ALossScaleThatOnlyFallsIsNamed) {
  CurveChecks checks(kVocabSize, 0, "");
  double scale = 65536;
  for (int64_t number = 1; number <= 16; ++number, scale *= 0.9) {
    EXPECT_THAT(checks.after_step(step(number, 5, scale)), IsEmpty()) << number;
  }
  EXPECT_THAT(checks.after_step(step(17, 5, scale)),
              ElementsAre(StartsWith("curve: collapsing loss scale: ")));
  EXPECT_THAT(CurveChecks(kVocabSize, 0, "").after_step(step(1, 5, 0.5)),
              ElementsAre(HasSubstr("5.0e-1")));
  CurveChecks steady(kVocabSize, 0, "");
  for (int64_t number = 1; number <= 40; ++number) {
    EXPECT_THAT(steady.after_step(step(number, 5, number % 10 == 0 ? 128 : 1024.0 / number + 1)),
                IsEmpty());
  }
}

TEST(CurveChecks, EvaluationsThatRepeatAreNamed) {
  CurveChecks checks(kVocabSize, 0, "");
  for (const int64_t number : {10, 20}) {
    EXPECT_THAT(checks.after_eval(eval(number, 0.125, 7)), IsEmpty());
  }
  EXPECT_THAT(checks.after_eval(eval(30, 0.125, 7)),
              ElementsAre(StartsWith("curve: untouched weights: the evaluations stay at 0.1250")));
  CurveChecks learning(kVocabSize, 0, "");
  for (const int64_t number : {10, 20, 30, 40}) {
    EXPECT_THAT(learning.after_eval(eval(number, 0.125, 7 - 1e-6 * static_cast<double>(number))),
                IsEmpty());
  }
}

/// As after an update that made the loss jump: the records after the checkpoint are replaced.
TEST(CurveChecks, AnEvaluationThatIsDoneAgainIsOne) {
  CurveChecks checks(kVocabSize, 0, "");
  for (int i = 0; i < 5; ++i) EXPECT_THAT(checks.after_eval(eval(10, 0.125, 7)), IsEmpty());
}

}  // namespace
}  // namespace bertha

#include "harness/config/keys.h"

#include <gtest/gtest.h>

#include "kernels/base/tests/matchers.h"

namespace bertha {
namespace {

TEST(ChangedSettings, NamesKeyAndBothValuesInTheOrderOfTheKeys) {
  Config was, is;
  EXPECT_THAT(changed_settings(was, is), IsEmpty());
  is.optimizer.beta_1 = 0.8;
  is.model.gelu = GeluForm::kErf;
  EXPECT_THAT(changed_settings(was, is),
              ElementsAre("model.gelu \"tanh\" -> \"erf\"", "optimizer.beta_1 0.9 -> 0.8"));
}

TEST(ChangedSettings, WhereThingsLieAndWhenARunEndsIsNoOtherRun) {
  Config was, is;
  is.data.train = "elsewhere";
  is.train.time_limit_minutes = 90;
  is.train.target_accuracy = 0.5;
  is.eval.every_samples = 1000;
  is.log.run_name = "other";
  is.checkpoint.resume = "never";
  is.checkpoint.keep_every_steps = 100;
  is.checkpoint.keep_best = true;
  is.cuda.attention = CudaOptions::AttentionVariant::kGrouped;
  EXPECT_THAT(changed_settings(was, is), IsEmpty());
  is.checkpoint.init = "start";
  EXPECT_THAT(changed_settings(was, is), ElementsAre("checkpoint.init \"\" -> \"start\""));
}

TEST(ChangedSettings, TheLastStepCountsWhereItSetsTheSchedule) {
  Config was, is;
  was.train.max_steps = 100;
  is.train.max_steps = 200;
  EXPECT_THAT(changed_settings(was, is), ElementsAre("train.max_steps 100 -> 200"));
  was.optimizer.schedule_steps = is.optimizer.schedule_steps = 200;
  EXPECT_THAT(changed_settings(was, is), IsEmpty());
}

}  // namespace
}  // namespace bertha

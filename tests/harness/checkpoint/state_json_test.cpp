#include "harness/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/base/tests/error_of.h"
#include "kernels/base/tests/matchers.h"
#include "tests/harness/checkpoint/checkpoint_rig.h"

namespace bertha::testing {
namespace {

std::string refusal(const nlohmann::json& json) {
  return error_of([&] { training_state_from_json(json.dump(), "run/state.json"); });
}

TEST(StateJson, ReadsBackWhatWasWritten) {
  TrainingState state = some_state(6);
  state.seed = UINT64_MAX;
  const TrainingState found = training_state_from_json(to_json(state), "p");
  EXPECT_EQ(to_json(found), to_json(state));
  EXPECT_EQ(found.seed, UINT64_MAX);
}

// Finite weights may give such a loss: their checkpoint is saved, and has to be read again.
TEST(StateJson, ALossThatIsNotFiniteReadsBackAsNaN) {
  for (const double loss :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    TrainingState state = some_state(6);
    state.evals[0].mlm_loss = loss;
    const TrainingState read = training_state_from_json(to_json(state), "p");
    EXPECT_TRUE(std::isnan(read.evals.at(0).mlm_loss));
    EXPECT_EQ(read.evals[0].mlm_accuracy, 0.1);
  }
  nlohmann::json json = nlohmann::json::parse(to_json(some_state(6)));
  json["evals"][0]["mlm_loss"] = "high";
  EXPECT_THAT(refusal(json), HasSubstr("evals[0].mlm_loss is \"high\", want a number"));
}

// As in checkpoints of earlier versions.
TEST(StateJson, WhatIsNotKnownIsLeftOutAndAllElseReadsBackBitForBit) {
  TrainingState state = some_state(6);
  for (const char* key : {"fp8", "joules", "ranks", "micro_batches", "content", "eval_identity",
                          "eval_content", "batches_left_out", "last_layer", "usual_loss"}) {
    EXPECT_EQ(to_json(state).find(key), std::string::npos) << key;
  }
  const TrainingState bare = training_state_from_json(to_json(state), "p");
  EXPECT_TRUE(bare.fp8_scale_exponents.empty());
  EXPECT_EQ(bare.joules, std::nullopt);
  EXPECT_EQ(bare.data.ranks, 0);
  EXPECT_EQ(bare.data.content, "");
  state.fp8_scale_exponents = {-7, 0, 15};
  state.joules = 1234.567;
  state.data.ranks = 8;
  state.data.micro_batches = 3;
  state.data.content = "c0";
  state.data.eval_identity = "e1";
  state.data.eval_content = "e2";
  state.batches_left_out = 12;
  state.last_layer = LastLayer::kNeededRows;
  state.usual_loss = {.mean = 1.0 / 3, .records = 8, .open_sum = 0.1, .open_masked = 7};
  const TrainingState read = training_state_from_json(to_json(state), "p");
  EXPECT_EQ(to_json(read), to_json(state));
  EXPECT_EQ(read.fp8_scale_exponents, state.fp8_scale_exponents);
  EXPECT_EQ(read.joules, 1234.567);
  EXPECT_EQ(read.data.ranks, 8);
  EXPECT_EQ(read.data.micro_batches, 3);
  EXPECT_EQ(read.data.content + read.data.eval_identity + read.data.eval_content, "c0e1e2");
  EXPECT_EQ(read.batches_left_out, 12);
  EXPECT_EQ(read.last_layer, LastLayer::kNeededRows);
  EXPECT_EQ(std::memcmp(&read.usual_loss, &state.usual_loss, sizeof(state.usual_loss)), 0);
}

TEST(StateJson, EveryCounterIsAWholeNumberInRange) {
  const nlohmann::json good = nlohmann::json::parse(to_json(some_state(6)));
  const char* const counters[] = {"/step",
                                  "/samples_trained",
                                  "/data/global_batch_seqs",
                                  "/data/window_shards",
                                  "/optimizer/successful_steps",
                                  "/optimizer/skipped_steps",
                                  "/optimizer/skips_in_a_row",
                                  "/optimizer/steps_since_growth",
                                  "/optimizer/skip",
                                  "/optimizer/norms_seen",
                                  "/optimizer/gradient_norm_bits",
                                  "/evals/0/step",
                                  "/evals/0/samples"};
  for (const char* counter : counters) {
    const nlohmann::json::json_pointer place(counter);
    for (const nlohmann::json& bad :
         {nlohmann::json(-1), nlohmann::json(3.99), nlohmann::json(1e300), nlohmann::json(-1e12),
          nlohmann::json(INT64_MAX), nlohmann::json(UINT64_MAX), nlohmann::json("6"),
          nlohmann::json(nullptr)}) {
      nlohmann::json wrong = good;
      wrong[place] = bad;
      EXPECT_THAT(refusal(wrong), AllOf(HasSubstr("run/state.json: field "), HasSubstr("want")))
          << counter << " = " << bad;
    }
  }
}

TEST(StateJson, EveryFieldHasItsTypeAndIsThere) {
  const nlohmann::json good = nlohmann::json::parse(to_json(some_state(6))).flatten();
  for (const auto& [place, value] : good.items()) {
    if (place == "/seed") continue;  // any word
    nlohmann::json wrong = good;
    wrong[place] = value.is_string() ? nlohmann::json(true) : nlohmann::json("text");
    EXPECT_THAT(refusal(wrong.unflatten()), HasSubstr("run/state.json: field ")) << place;
    wrong = good;
    wrong.erase(place);
    if (place.starts_with("/evals/0")) continue;  // unflatten makes another shape of it
    EXPECT_THAT(refusal(wrong.unflatten()), HasSubstr("is missing")) << place;
  }
}

TEST(StateJson, ACheckpointOfBeforeHasNoUsualGradientNorm) {
  nlohmann::json old = nlohmann::json::parse(to_json(some_state(6)));
  old["optimizer"].erase("norms_seen");
  old["optimizer"].erase("usual_log_norm");
  EXPECT_EQ(training_state_from_json(old.dump(), "p").lamb.norms_seen, 0);
}

TEST(StateJson, NumbersOutOfRangeAreRefused) {
  TrainingState state = some_state(6);
  state.fp8_scale_exponents = {-7, 0, 15};
  const nlohmann::json good = nlohmann::json::parse(to_json(state));
  nlohmann::json wrong = good;
  wrong["fp8_scale_exponents"][1] = 101;
  EXPECT_THAT(refusal(wrong), AllOf(HasSubstr("fp8_scale_exponents"), HasSubstr("101")));
  wrong = good;
  wrong["optimizer"]["usual_log_norm"] = 1e300;
  EXPECT_THAT(refusal(wrong), HasSubstr("usual_log_norm is 1e+300, want a number of 32 bits"));
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, double>>{{"/optimizer/loss_scale", 1e300},
                                                   {"/optimizer/loss_scale", -1},
                                                   {"/optimizer/learning_rate", -1e-30},
                                                   {"/optimizer/bias_correction_1", 1.5},
                                                   {"/optimizer/bias_correction_2", -0.5},
                                                   {"/training_seconds", -1},
                                                   {"/evals/0/mlm_accuracy", 1.01}}) {
    wrong = good;
    wrong[nlohmann::json::json_pointer(field)] = value;
    EXPECT_THAT(refusal(wrong), HasSubstr("want a number from 0 to")) << field;
  }
}

TEST(StateJson, TextThatIsNestedTooDeepIsDamaged) {
  EXPECT_THAT(
      error_of([&] { training_state_from_json(std::string(400'000, '['), "run/state.json"); }),
      AllOf(HasSubstr("run/state.json"), HasSubstr("nested deeper")));
}

}  // namespace
}  // namespace bertha::testing

#include "harness/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/base/tests/error_of.h"

namespace bertha::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TrainingState example_state() {
  TrainingState state{.step = 6,
                      .samples_trained = 72,
                      .seed = UINT64_MAX,
                      .data = {.global_batch_seqs = 12,
                               .order = SampleOrder::kWindowed,
                               .window_shards = 2,
                               .identity = "0123456789abcdef0123456789abcdef"},
                      .lamb = {},
                      .evals = {},
                      .training_seconds = 1.5};
  state.evals.push_back({.step = 6, .samples = 72, .mlm_accuracy = 0.25, .mlm_loss = 5.5});
  return state;
}

std::string refusal(const nlohmann::json& json) {
  return error_of([&] { training_state_from_json(json.dump(), "run/state.json"); });
}

TEST(StateJson, ReadsBackWhatWasWritten) {
  const TrainingState found = training_state_from_json(to_json(example_state()), "p");
  EXPECT_EQ(to_json(found), to_json(example_state()));
  EXPECT_EQ(found.seed, UINT64_MAX);
}

// Finite weights may give such a loss: their checkpoint is saved, and has to be read again.
TEST(StateJson, ALossThatIsNotFiniteReadsBackAsNaN) {
  for (const double loss :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    TrainingState state = example_state();
    state.evals[0].mlm_loss = loss;
    const TrainingState read = training_state_from_json(to_json(state), "p");
    EXPECT_TRUE(std::isnan(read.evals.at(0).mlm_loss));
    EXPECT_EQ(read.evals[0].mlm_accuracy, 0.25);
  }
  nlohmann::json json = nlohmann::json::parse(to_json(example_state()));
  json["evals"][0]["mlm_loss"] = "high";
  EXPECT_THAT(refusal(json), HasSubstr("evals[0].mlm_loss is \"high\", want a number"));
}

TEST(StateJson, ScalesOfFp8ArePowersOfTwoOrLeftOut) {
  TrainingState state = example_state();
  EXPECT_EQ(to_json(state).find("fp8"), std::string::npos);
  EXPECT_TRUE(training_state_from_json(to_json(state), "p").fp8_scale_exponents.empty());
  state.fp8_scale_exponents = {-7, 0, 15};
  EXPECT_EQ(training_state_from_json(to_json(state), "p").fp8_scale_exponents,
            (std::vector<int>{-7, 0, 15}));
  nlohmann::json json = nlohmann::json::parse(to_json(state));
  json["fp8_scale_exponents"][1] = 101;
  EXPECT_THAT(refusal(json), AllOf(HasSubstr("fp8_scale_exponents"), HasSubstr("101")));
}

TEST(StateJson, TheEnergyIsLeftOutWhereItIsNotKnown) {
  TrainingState state = example_state();
  EXPECT_EQ(to_json(state).find("joules"), std::string::npos);
  EXPECT_EQ(training_state_from_json(to_json(state), "p").joules, std::nullopt);
  state.joules = 1234.567;
  EXPECT_EQ(training_state_from_json(to_json(state), "p").joules, 1234.567);
}

TEST(StateJson, ThePublishedOrderKeepsItsRanksAndMicroBatches) {
  TrainingState state = example_state();
  EXPECT_EQ(to_json(state).find("ranks"), std::string::npos);
  EXPECT_EQ(training_state_from_json(to_json(state), "p").data.ranks, 0);
  state.data.ranks = 8;
  state.data.micro_batches = 3;
  const DataPosition read = training_state_from_json(to_json(state), "p").data;
  EXPECT_EQ(read.ranks, 8);
  EXPECT_EQ(read.micro_batches, 3);
}

// Checkpoints of before have names and sizes of the training shards alone.
TEST(StateJson, WhatIsNotKnownOfTheDataIsLeftOut) {
  TrainingState state = example_state();
  for (const char* key : {"content", "eval_identity", "eval_content"}) {
    EXPECT_EQ(to_json(state).find(key), std::string::npos);
  }
  EXPECT_EQ(training_state_from_json(to_json(state), "p").data.content, "");
  state.data.content = "c0";
  state.data.eval_identity = "e1";
  state.data.eval_content = "e2";
  const DataPosition read = training_state_from_json(to_json(state), "p").data;
  EXPECT_EQ(read.content, "c0");
  EXPECT_EQ(read.eval_identity, "e1");
  EXPECT_EQ(read.eval_content, "e2");
}

TEST(StateJson, LeftOutBatchesAndTheUsualLossReadBackBitForBit) {
  TrainingState state = example_state();
  for (const char* key : {"batches_left_out", "last_layer", "usual_loss"}) {
    EXPECT_EQ(to_json(state).find(key), std::string::npos);  // as in files of before
  }
  state.batches_left_out = 12;
  state.last_layer = LastLayer::kNeededRows;
  state.usual_loss = {.mean = 1.0 / 3, .records = 8, .open_sum = 0.1, .open_masked = 7};
  const TrainingState read = training_state_from_json(to_json(state), "p");
  EXPECT_EQ(read.batches_left_out, 12);
  EXPECT_EQ(read.last_layer, LastLayer::kNeededRows);
  EXPECT_EQ(read.usual_loss.mean, 1.0 / 3);
  EXPECT_EQ(read.usual_loss.records, 8);
  EXPECT_EQ(read.usual_loss.open_sum, 0.1);
  EXPECT_EQ(read.usual_loss.open_masked, 7);
}

TEST(StateJson, EveryCounterIsAWholeNumberInRange) {
  const nlohmann::json good = nlohmann::json::parse(to_json(example_state()));
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
      nlohmann::json bent = good;
      bent[place] = bad;
      EXPECT_THAT(refusal(bent), AllOf(HasSubstr("run/state.json: field "), HasSubstr("want")))
          << counter << " = " << bad;
    }
  }
}

TEST(StateJson, EveryFieldHasItsTypeAndIsThere) {
  const nlohmann::json good = nlohmann::json::parse(to_json(example_state())).flatten();
  for (const auto& [place, value] : good.items()) {
    if (place == "/seed") continue;  // any word
    nlohmann::json bent = good;
    bent[place] = value.is_string() ? nlohmann::json(true) : nlohmann::json("text");
    EXPECT_THAT(refusal(bent.unflatten()), HasSubstr("run/state.json: field ")) << place;
    bent = good;
    bent.erase(place);
    if (place.starts_with("/evals/0")) continue;  // unflatten makes another shape of it
    EXPECT_THAT(refusal(bent.unflatten()), HasSubstr("is missing")) << place;
  }
}

TEST(StateJson, ACheckpointOfBeforeHasNoUsualGradientNorm) {
  nlohmann::json old = nlohmann::json::parse(to_json(example_state()));
  old["optimizer"].erase("norms_seen");
  old["optimizer"].erase("usual_log_norm");
  EXPECT_EQ(training_state_from_json(old.dump(), "p").lamb.norms_seen, 0);
}

TEST(StateJson, NumbersOutOfRangeAreRefused) {
  const nlohmann::json good = nlohmann::json::parse(to_json(example_state()));
  nlohmann::json bent = good;
  bent["optimizer"]["usual_log_norm"] = 1e300;
  EXPECT_THAT(refusal(bent), HasSubstr("usual_log_norm is 1e+300, want a number of 32 bits"));
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, double>>{{"/optimizer/loss_scale", 1e300},
                                                   {"/optimizer/loss_scale", -1},
                                                   {"/optimizer/learning_rate", -1e-30},
                                                   {"/optimizer/bias_correction_1", 1.5},
                                                   {"/optimizer/bias_correction_2", -0.5},
                                                   {"/training_seconds", -1},
                                                   {"/evals/0/mlm_accuracy", 1.01}}) {
    bent = good;
    bent[nlohmann::json::json_pointer(field)] = value;
    EXPECT_THAT(refusal(bent), HasSubstr("want a number from 0 to")) << field;
  }
}

TEST(StateJson, TextThatIsNestedTooDeepIsDamaged) {
  EXPECT_THAT(
      error_of([&] { training_state_from_json(std::string(400'000, '['), "run/state.json"); }),
      AllOf(HasSubstr("run/state.json"), HasSubstr("nested deeper")));
}

}  // namespace
}  // namespace bertha::testing

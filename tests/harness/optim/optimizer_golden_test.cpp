#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/base/tests/tolerance.h"
#include "kernels/ops/lamb_state.h"
#include "tests/harness/optim/optimizer_runs.h"
#include "tests/support/source_dir.h"

namespace bertha::testing {
namespace {

// Values of an independent program: tests/golden/make_lamb_golden.py.
nlohmann::json golden() {
  std::ifstream file(std::string(kSourceDir) + "/tests/golden/lamb_golden.json");
  return nlohmann::json::parse(file);
}

ParamTable golden_table(const nlohmann::json& json) {
  std::vector<TensorSpec> tensors;
  for (const auto& tensor : json.at("tensors")) {
    tensors.push_back({.name = tensor.at("name"),
                       .shape = tensor.at("shape"),
                       .decay = tensor.at("decay"),
                       .norm_parts = tensor.at("norm_parts")});
  }
  return table_of(tensors);
}

/// From the tensors one behind the other to the flat buffer with its gaps.
std::vector<float> spread(const ParamTable& table, const std::vector<float>& dense) {
  std::vector<float> flat(static_cast<size_t>(table.elements));
  auto from = dense.begin();
  for (const ParamInfo& param : table.params) {
    std::copy_n(from, param.elements, flat.begin() + param.offset);
    from += param.elements;
  }
  return flat;
}

/// A key of the file, and what was run for it.
struct GoldenCase {
  const char* key;
  OptimizerName name;
  ClipTime clip;
};

OptimizerConfig golden_config(const nlohmann::json& json, const GoldenCase& test_case) {
  const auto& c = json.at("config");
  return {.name = test_case.name,
          .base_learning_rate = c.at("base_learning_rate"),
          .warmup_steps = c.at("warmup_steps"),
          .start_warmup_step = c.at("start_warmup_step"),
          .decay_degree = c.at("decay_degree"),
          .beta_1 = c.at("beta_1"),
          .beta_2 = c.at("beta_2"),
          .epsilon = c.at("epsilon"),
          .weight_decay = c.at("weight_decay"),
          .max_gradient_norm = c.at("max_gradient_norm"),
          .clip = test_case.clip,
          .loss_scale = LossScaling::kDynamic,
          .initial_loss_scale = c.at("initial_loss_scale"),
          .loss_scale_growth_interval_steps = c.at("loss_scale_growth_interval_steps")};
}

RunSpec golden_spec(const nlohmann::json& json, const GoldenCase& test_case) {
  const ParamTable table = golden_table(json);
  const int overflow_step = json.at("overflow_step");
  const auto gradient = [json, table, overflow_step](int step, int rank, int ranks) {
    std::vector<float> part =
        spread(table, json.at("gradients")[static_cast<size_t>(step)][static_cast<size_t>(rank)]);
    for (float& value : part) value /= static_cast<float>(ranks);
    if (step == overflow_step && rank == 1) part[3] = INFINITY;
    return part;
  };
  return {.config = golden_config(json, test_case),
          .schedule_steps = json.at("config").at("schedule_steps"),
          .table = table,
          .weights = spread(table, json.at("weights")),
          .gradient = gradient,
          .steps = static_cast<int>(json.at("gradients").size())};
}

class OptimizerGolden : public ::testing::TestWithParam<GoldenCase> {};

TEST_P(OptimizerGolden, FiveUpdatesOfTwoRanksEqualThoseOfTheOtherProgram) {
  const nlohmann::json json = golden();
  const RunSpec spec = golden_spec(json, GetParam());
  const RunResult result = run_on_threads(json.at("ranks"), spec)[1];
  ASSERT_EQ(result.states.size(), 5u);
  for (size_t step = 0; step < result.states.size(); ++step) {
    SCOPED_TRACE(concat("step ", step));
    const auto& want = json.at(GetParam().key)[step];
    const LambState& state = result.states[step];
    EXPECT_EQ(state.loss_scale, want.at("loss_scale").get<float>());
    EXPECT_EQ(state.successful_steps, want.at("successful_steps").get<int64_t>());
    EXPECT_EQ(state.skipped_steps, want.at("skipped_steps").get<int64_t>());
    if (want.contains("learning_rate")) {
      EXPECT_FLOAT_EQ(state.learning_rate, want.at("learning_rate").get<float>());
      EXPECT_NEAR(state.gradient_norm, want.at("gradient_norm").get<double>(),
                  tolerance::kLambF32 * want.at("gradient_norm").get<double>());
    }
    const std::vector<float> weights = spread(spec.table, want.at("weights"));
    for (size_t i = 0; i < weights.size(); ++i) {
      ASSERT_NEAR(result.weights_by_step[step][i], weights[i],
                  tolerance::kLambF32 * std::max(1.0f, std::abs(weights[i])))
          << "element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, OptimizerGolden,
    ::testing::Values(GoldenCase{"after", OptimizerName::kLamb, ClipTime::kAfter},
                      GoldenCase{"before", OptimizerName::kLamb, ClipTime::kBefore},
                      GoldenCase{"adamw", OptimizerName::kAdamw, ClipTime::kAfter}));

}  // namespace
}  // namespace bertha::testing

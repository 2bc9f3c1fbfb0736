#include "harness/checkpoint/state_json.h"

#include <bit>
#include <nlohmann/json.hpp>

#include "data/json_file.h"

namespace bertha {
namespace {

using Json = nlohmann::json;

constexpr int kStateVersion = 2;  // 2: with the position in the data

// Without most_skips_in_a_row: a process counts its own. A row of skips that a checkpoint lies in
// goes on counting in skips_in_a_row, and ends the run at its next skip if that reaches the limit.
// One that was over at the checkpoint had been judged by the limit of its time: a run that goes on
// with a smaller limit is not ended by it.
Json lamb_to_json(const LambState& lamb) {
  return {{"successful_steps", lamb.successful_steps},
          {"skipped_steps", lamb.skipped_steps},
          {"skips_in_a_row", lamb.skips_in_a_row},
          {"steps_since_growth", lamb.steps_since_growth},
          {"loss_scale", lamb.loss_scale},
          // A norm that is not finite has no JSON number; its bits always have.
          {"gradient_norm_bits", std::bit_cast<uint32_t>(lamb.gradient_norm)},
          {"learning_rate", lamb.learning_rate},
          {"gradient_multiplier_bits", std::bit_cast<uint32_t>(lamb.gradient_multiplier)},
          {"bias_correction_1", lamb.bias_correction_1},
          {"bias_correction_2", lamb.bias_correction_2},
          {"skip", lamb.skip}};
}

LambState lamb_from_json(const Json& json) {
  return {.successful_steps = json.at("successful_steps"),
          .skipped_steps = json.at("skipped_steps"),
          .skips_in_a_row = json.at("skips_in_a_row"),
          .steps_since_growth = json.at("steps_since_growth"),
          .loss_scale = json.at("loss_scale"),
          .learning_rate = json.at("learning_rate"),
          .gradient_norm = std::bit_cast<float>(json.at("gradient_norm_bits").get<uint32_t>()),
          .gradient_multiplier =
              std::bit_cast<float>(json.at("gradient_multiplier_bits").get<uint32_t>()),
          .bias_correction_1 = json.at("bias_correction_1"),
          .bias_correction_2 = json.at("bias_correction_2"),
          .skip = json.at("skip")};
}

}  // namespace

std::string to_json(const TrainingState& state) {
  Json evals = Json::array();
  for (const EvalPoint& point : state.evals) {
    evals.push_back({{"step", point.step},
                     {"samples", point.samples},
                     {"mlm_accuracy", point.mlm_accuracy},
                     {"mlm_loss", point.mlm_loss}});
  }
  const Json json = {{"version", kStateVersion},
                     {"step", state.step},
                     {"samples_trained", state.samples_trained},
                     {"next_eval", state.next_eval},
                     {"seed", state.seed},
                     {"training_seconds", state.training_seconds},
                     {"data",
                      {{"global_batch_seqs", state.data.global_batch_seqs},
                       {"order", state.data.order},
                       {"window_shards", state.data.window_shards},
                       {"identity", state.data.identity}}},
                     {"optimizer", lamb_to_json(state.lamb)},
                     {"evals", evals}};
  return json.dump(2) + "\n";
}

TrainingState training_state_from_json(const std::string& text, const std::string& path) {
  try {
    const Json json = parse_json(text);
    if (json.at("version") != kStateVersion) {
      fail(ExitCode::kData, path, ": has version ", json.at("version").dump(), ", want ",
           kStateVersion, "; use the program that wrote it.");
    }
    const Json& data = json.at("data");
    TrainingState state{.step = json.at("step"),
                        .samples_trained = json.at("samples_trained"),
                        .next_eval = json.at("next_eval"),
                        .seed = json.at("seed"),
                        .data = {.global_batch_seqs = data.at("global_batch_seqs"),
                                 .order = data.at("order"),
                                 .window_shards = data.at("window_shards"),
                                 .identity = data.at("identity")},
                        .lamb = lamb_from_json(json.at("optimizer")),
                        .evals = {},
                        .training_seconds = json.at("training_seconds")};
    for (const Json& point : json.at("evals")) {
      state.evals.push_back({.step = point.at("step"),
                             .samples = point.at("samples"),
                             .mlm_accuracy = point.at("mlm_accuracy"),
                             .mlm_loss = point.at("mlm_loss")});
    }
    return state;
  } catch (const Json::exception& error) {
    fail(ExitCode::kData, path, ": cannot be read (", error.what(),
         "); the checkpoint is damaged, use an earlier one.");
  }
}

}  // namespace bertha

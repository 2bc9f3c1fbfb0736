#include "harness/checkpoint/checkpoint.h"

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "data/files/json_file.h"
#include "kernels/ops/lamb_rules.h"

namespace bertha {
namespace {

using Json = nlohmann::json;

constexpr int kStateVersion = 2;  // 2: with the position in the data

// Leaves out most_skips_in_a_row: each process counts its own. A series of skips that is open at a
// checkpoint continues to count in skips_in_a_row, and ends the run at the next skip that reaches
// the limit. A series that had ended before the checkpoint was judged by the limit of that time: it
// does not end a run that resumes with a smaller limit. The same applies to spikes, which only the
// log reports.
Json lamb_to_json(const LambState& lamb) {
  return {{"successful_steps", lamb.successful_steps},
          {"skipped_steps", lamb.skipped_steps},
          {"skips_in_a_row", lamb.skips_in_a_row},
          {"steps_since_growth", lamb.steps_since_growth},
          {"loss_scale", lamb.loss_scale},
          // The bits of a norm: JSON has no number for one that is not finite.
          {"gradient_norm_bits", std::bit_cast<uint32_t>(lamb.gradient_norm)},
          {"learning_rate", lamb.learning_rate},
          {"gradient_multiplier_bits", std::bit_cast<uint32_t>(lamb.gradient_multiplier)},
          {"bias_correction_1", lamb.bias_correction_1},
          {"bias_correction_2", lamb.bias_correction_2},
          {"usual_log_norm", lamb.usual_log_norm},
          {"norms_seen", lamb.norms_seen},
          {"skip", lamb.skip}};
}

// Upper limit of steps, samples and evaluations, whose sums do not overflow 64 bits.
constexpr int64_t kMaxCounted = 1'000'000'000'000;

int64_t counter(const JsonField& field) { return field.integer(0, kMaxCounted); }

float single(const JsonField& field) {
  const double value = field.number();
  if (std::abs(value) > std::numeric_limits<float>::max()) field.wrong("a number of 32 bits");
  return static_cast<float>(value);
}

/// A number from 0 to `most`.
double from_zero(const JsonField& field, double most = std::numeric_limits<float>::max()) {
  const double value = field.number();
  if (value < 0 || value > most) field.wrong(concat("a number from 0 to ", most));
  return value;
}

/// A value that is not finite is written as null: JSON has no number for it.
double loss(const JsonField& field) {
  return field.is_null() ? std::numeric_limits<double>::quiet_NaN() : field.number();
}

float float_of_bits(const JsonField& field) {
  return std::bit_cast<float>(static_cast<uint32_t>(field.integer(0, UINT32_MAX)));
}

DataPosition position_from_json(const JsonField& field) {
  DataPosition position;
  position.global_batch_seqs = counter(field["global_batch_seqs"]);
  const auto order = choice_of<SampleOrder>(field["order"].text());
  if (!order) field["order"].wrong("windowed or published");
  position.order = *order;
  position.window_shards = counter(field["window_shards"]);
  position.identity = field["identity"].text();
  const auto read_optional = [&](const char* name, std::string& text) {
    if (field.contains(name)) text = field[name].text();
  };
  read_optional("content", position.content);
  read_optional("eval_identity", position.eval_identity);
  read_optional("eval_content", position.eval_content);
  if (field.contains("ranks")) {
    position.ranks = counter(field["ranks"]);
    position.micro_batches = counter(field["micro_batches"]);
  }
  return position;
}

LambState lamb_from_json(const JsonField& field) {
  // Older checkpoints have no mean of the gradient norm, which then restarts.
  const bool knows_norms = field.contains("norms_seen") || field.contains("usual_log_norm");
  return {.successful_steps = counter(field["successful_steps"]),
          .skipped_steps = counter(field["skipped_steps"]),
          .skips_in_a_row = counter(field["skips_in_a_row"]),
          .steps_since_growth = counter(field["steps_since_growth"]),
          .loss_scale = static_cast<float>(from_zero(field["loss_scale"])),
          .learning_rate = static_cast<float>(from_zero(field["learning_rate"])),
          .gradient_norm = float_of_bits(field["gradient_norm_bits"]),
          .gradient_multiplier = float_of_bits(field["gradient_multiplier_bits"]),
          .bias_correction_1 = static_cast<float>(from_zero(field["bias_correction_1"], 1)),
          .bias_correction_2 = static_cast<float>(from_zero(field["bias_correction_2"], 1)),
          .usual_log_norm = knows_norms ? single(field["usual_log_norm"]) : 0.0f,
          .skip = static_cast<int32_t>(field["skip"].integer(0, 1)),
          .norms_seen = knows_norms
                            ? static_cast<int32_t>(field["norms_seen"].integer(0, kNormsRemembered))
                            : 0};
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
  Json json = {{"version", kStateVersion},
               {"step", state.step},
               {"samples_trained", state.samples_trained},
               {"seed", state.seed},
               {"training_seconds", state.training_seconds},
               {"data",
                {{"global_batch_seqs", state.data.global_batch_seqs},
                 {"order", word_of(state.data.order)},
                 {"window_shards", state.data.window_shards},
                 {"identity", state.data.identity}}},
               {"optimizer", lamb_to_json(state.lamb)},
               {"evals", evals}};
  const auto write_if_known = [&](const char* name, const std::string& text) {
    if (!text.empty()) json["data"][name] = text;
  };
  write_if_known("content", state.data.content);
  write_if_known("eval_identity", state.data.eval_identity);
  write_if_known("eval_content", state.data.eval_content);
  if (state.data.ranks > 0) {
    json["data"]["ranks"] = state.data.ranks;
    json["data"]["micro_batches"] = state.data.micro_batches;
  }
  if (state.batches_left_out > 0) json["batches_left_out"] = state.batches_left_out;
  if (const UsualLoss& usual = state.usual_loss; usual.records > 0 || usual.open_masked > 0) {
    json["usual_loss"] = {{"mean", usual.mean},
                          {"records", usual.records},
                          {"open_sum", usual.open_sum},
                          {"open_masked", usual.open_masked}};
  }
  if (state.last_layer == LastLayer::kNeededRows) json["last_layer"] = word_of(state.last_layer);
  if (state.joules) json["joules"] = *state.joules;
  if (!state.fp8_scale_exponents.empty()) json["fp8_scale_exponents"] = state.fp8_scale_exponents;
  return json.dump(2) + "\n";
}

TrainingState training_state_from_json(const std::string& text, const std::string& path) {
  try {
    const Json json = parse_json(text);
    const JsonField root(path, json);
    if (const JsonField version = root["version"]; version.count() != kStateVersion) {
      version.wrong(concat(kStateVersion, "; use the program that wrote it."));
    }
    // One at a time: if an element of an initializer list throws, GCC 12 destroys some of the
    // earlier ones twice.
    TrainingState state;
    state.step = counter(root["step"]);
    state.samples_trained = counter(root["samples_trained"]);
    state.seed = root["seed"].word();
    state.data = position_from_json(root["data"]);
    state.lamb = lamb_from_json(root["optimizer"]);
    state.training_seconds = from_zero(root["training_seconds"]);
    root["evals"].for_each([&](const JsonField& point) {
      state.evals.push_back({.step = counter(point["step"]),
                             .samples = counter(point["samples"]),
                             .mlm_accuracy = from_zero(point["mlm_accuracy"], 1),
                             .mlm_loss = loss(point["mlm_loss"])});
    });
    if (root.contains("batches_left_out"))
      state.batches_left_out = counter(root["batches_left_out"]);
    if (root.contains("usual_loss")) {
      const JsonField usual = root["usual_loss"];
      state.usual_loss = {.mean = usual["mean"].number(),
                          .records = counter(usual["records"]),
                          .open_sum = usual["open_sum"].number(),
                          .open_masked = counter(usual["open_masked"])};
    }
    if (root.contains("last_layer")) {
      if (root["last_layer"].text() != word_of(LastLayer::kNeededRows)) {
        root["last_layer"].wrong(concat("\"", word_of(LastLayer::kNeededRows), "\""));
      }
      state.last_layer = LastLayer::kNeededRows;
    }
    if (root.contains("joules")) state.joules = from_zero(root["joules"]);
    if (root.contains("fp8_scale_exponents")) {
      root["fp8_scale_exponents"].for_each([&](const JsonField& exponent) {
        state.fp8_scale_exponents.push_back(static_cast<int>(exponent.integer(-100, 100)));
      });
    }
    return state;
  } catch (const JsonError& error) {
    fail(ExitCode::kData, path, ": cannot be read (", error.what(),
         "); the checkpoint is damaged, use an earlier one.");
  }
}

}  // namespace bertha

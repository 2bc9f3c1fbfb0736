#include "harness/mlperf/log_writer.h"

#include <filesystem>
#include <string_view>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {
namespace {

/// The path relative to the repository's root: the build machine's folders are private, and the
/// seed checker compares source lines between runs.
std::string repository_path(std::string_view file) {
  const size_t at = file.rfind("harness/mlperf/");
  return std::string(at == std::string_view::npos ? file : file.substr(at));
}

}  // namespace

std::string spaced_json(const nlohmann::ordered_json& value) {
  if (!value.is_structured()) {
    return value.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  }
  std::string text;
  for (const auto& [key, child] : value.items()) {
    if (!text.empty()) text += ", ";
    if (value.is_object()) text += spaced_json(key) + ": ";
    text += spaced_json(child);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

std::string next_mlperf_log_path(const std::string& folder) {
  std::string path = folder + "/result_0.txt";
  for (int64_t resume = 1; std::filesystem::exists(path); ++resume) {
    path = concat(folder, "/result_0.resume", resume, ".txt");
  }
  return path;
}

MlperfLog::MlperfLog(const std::string& path, Clock clock)
    : file_(path), clock_(std::move(clock)) {}

void MlperfLog::write(const char* event_type, const char* key, const Json& value,
                      const Json& metadata, const Place& place) {
  Json whole = {{"file", repository_path(place.file_name())}, {"lineno", place.line()}};
  whole.update(metadata);
  const Json line = {{"namespace", ""}, {"time_ms", clock_()}, {"event_type", event_type},
                     {"key", key},      {"value", value},      {"metadata", whole}};
  file_.append_line(":::MLLOG " + spaced_json(line));
}

void MlperfLog::point(const char* key, const Json& value, const Json& metadata, Place place) {
  write("POINT_IN_TIME", key, value, metadata, place);
}

void MlperfLog::start(const char* key, const Json& metadata, Place place) {
  write("INTERVAL_START", key, nullptr, metadata, place);
}

void MlperfLog::stop(const char* key, const Json& metadata, Place place) {
  write("INTERVAL_END", key, nullptr, metadata, place);
}

void MlperfLog::init_start(const Config& config) {
  // Emptying the page caches needs root, so the launcher does it; the record repeats its statement.
  point("cache_clear", config.mlperf.cache_cleared);
  start("init_start");
}

void MlperfLog::facts_of_submission(const Config& config) {
  point("submission_benchmark", "bert");
  point("submission_org", config.mlperf.submission_org);
  point("submission_division", word_of(config.mlperf.division));
  point("submission_status", word_of(config.mlperf.status));
  point("submission_platform", config.mlperf.submission_platform);
}

void MlperfLog::facts_of_batch(const Config& config, const RunFacts& facts) {
  const TrainConfig& train = config.train;
  const OptimizerConfig& optimizer = config.optimizer;
  point("seed", train.seed);
  point("global_batch_size", train.global_batch_seqs);
  point("d_batch_size", train.global_batch_seqs / (facts.world_size * train.accumulation_steps));
  point("gradient_accumulation_steps", train.accumulation_steps);
  point("max_predictions_per_seq", facts.masked_per_seq);
  point("opt_learning_rate_training_steps",
        optimizer.schedule_steps > 0 ? optimizer.schedule_steps : train.max_steps);
  point("num_warmup_steps", optimizer.warmup_steps);
  for (const std::string& tensor : facts.tensor_names) {
    point("weights_initialization", nullptr, {{"tensor", tensor}});
  }
}

void MlperfLog::facts_of_optimizer(const OptimizerConfig& optimizer) {
  point("opt_base_learning_rate", optimizer.base_learning_rate);
  point("opt_lamb_epsilon", optimizer.epsilon);
  point("opt_epsilon", optimizer.epsilon);
  point("opt_lamb_beta_1", optimizer.beta_1);
  point("opt_lamb_beta_2", optimizer.beta_2);
  point("opt_lamb_weight_decay_rate", optimizer.weight_decay);
  point("opt_learning_rate_warmup_steps", optimizer.warmup_steps);
  point("opt_lamb_learning_rate_decay_poly_power", optimizer.decay_degree);
  point("start_warmup_step", optimizer.start_warmup_step);
}

void MlperfLog::init_stop(const Config& config, const RunFacts& facts) {
  facts_of_submission(config);
  facts_of_batch(config, facts);
  facts_of_optimizer(config.optimizer);
  stop("init_stop");
}

void MlperfLog::run_start(int64_t first_sample) {
  start("run_start");
  start("epoch_start", {{"epoch_num", first_sample}});
  start("block_start", {{"first_epoch_num", 1}, {"epoch_count", 1}});
}

void MlperfLog::eval_start(int64_t samples) { start("eval_start", {{"epoch_num", samples}}); }

void MlperfLog::eval_stop(const EvalRecord& record) {
  stop("eval_stop", {{"epoch_num", record.samples}});
  point("eval_accuracy", record.mlm_accuracy, {{"epoch_num", record.samples}});
  point("tracked_stats", {{"throughput", record.seqs_per_second_since_last}},
        {{"step", record.step}});
}

void MlperfLog::run_stop(const RunEnd& end, int64_t eval_samples) {
  stop("block_stop", {{"first_epoch_num", 1}});
  stop("epoch_stop", {{"epoch_num", end.samples}});
  point("train_samples", end.samples);
  point("eval_samples", eval_samples);
  if (const std::optional<double> each = end.joules_per_sample()) {
    point("tracked_stats", {{"joules", *end.joules}, {"joules_per_sample", *each}});
  }
  stop("run_stop", {{"status", end.status}});
}

}  // namespace bertha

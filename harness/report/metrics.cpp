#include "harness/report/metrics.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

#include "data/files/json_file.h"
#include "data/files/text_file.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

using Json = nlohmann::ordered_json;

template <class Record>
struct Column {
  const char* name;
  double Record::*value;
};

constexpr std::array<Column<StepRecord>, 16> kStepColumns = {{
    {"loss", &StepRecord::loss},
    {"mlm_loss", &StepRecord::mlm_loss},
    {"mlm_accuracy", &StepRecord::mlm_accuracy},
    {"learning_rate", &StepRecord::learning_rate},
    {"gradient_norm", &StepRecord::gradient_norm},
    {"loss_scale", &StepRecord::loss_scale},
    {"step_ms", &StepRecord::step_ms},
    {"data_wait_ms", &StepRecord::data_wait_ms},
    {"forward_ms", &StepRecord::forward_ms},
    {"backward_ms", &StepRecord::backward_ms},
    {"communication_ms", &StepRecord::communication_ms},
    {"optimizer_ms", &StepRecord::optimizer_ms},
    {"seqs_per_second", &StepRecord::seqs_per_second},
    {"tokens_per_second", &StepRecord::tokens_per_second},
    {"flops_per_second", &StepRecord::flops_per_second},
    {"token_imbalance", &StepRecord::token_imbalance},
}};

// Runs of before have none of these.
constexpr std::array<Column<RankSummary>, 6> kRankColumns = {{
    {"slowest_rank_compute_ms", &RankSummary::slowest_compute_ms},
    {"other_ranks_compute_ms", &RankSummary::others_compute_ms},
    {"longest_data_wait_ms", &RankSummary::longest_wait_ms},
    {"mean_data_wait_ms", &RankSummary::mean_wait_ms},
    {"power_watts", &RankSummary::power_watts},
    {"lowest_sm_mhz", &RankSummary::lowest_sm_mhz},
}};

constexpr std::array<Column<EvalRecord>, 4> kEvalColumns = {{
    {"mlm_accuracy", &EvalRecord::mlm_accuracy},
    {"mlm_loss", &EvalRecord::mlm_loss},
    {"seconds", &EvalRecord::seconds},
    {"seqs_per_second_since_last", &EvalRecord::seqs_per_second_since_last},
}};

template <class Record, size_t kCount>
Json to_json(const Record& record, const std::array<Column<Record>, kCount>& columns) {
  Json fields = {{"step", record.step}, {"samples", record.samples}};
  for (const Column<Record>& column : columns) fields[column.name] = record.*column.value;
  return fields;
}

template <class Record, size_t kCount>
Record from_json(const nlohmann::json& fields, const std::array<Column<Record>, kCount>& columns) {
  Record record;
  record.step = whole_number(fields.at("step"));
  record.samples = whole_number(fields.at("samples"));
  for (const Column<Record>& column : columns) {
    const nlohmann::json& value = fields.at(column.name);
    record.*column.value =
        value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.template get<double>();
  }
  return record;
}

/// A resumed run starts again below the last step written: its records take the place of those.
template <class Record>
void append_replacing(const Record& record, std::vector<Record>& records) {
  while (!records.empty() && records.back().step >= record.step) records.pop_back();
  records.push_back(record);
}

Json number_or_null(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

void add_later_columns(const StepRecord& record, Json& fields) {
  fields["skipped_steps"] = record.skipped_steps;
  fields["spikes"] = record.spikes;
  fields["fp8_saturated"] = record.fp8_saturated;
  fields["memory_bytes"] = record.memory_bytes;
  fields["slowest_rank"] = record.ranks.slowest;
  fields["longest_waiting_rank"] = record.ranks.longest_waiting;
  for (const auto& column : kRankColumns) fields[column.name] = record.ranks.*column.value;
}

std::optional<double> number_in(const nlohmann::json& fields, const char* name) {
  const auto found = fields.find(name);
  if (found == fields.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

double number_or_zero(const nlohmann::json& fields, const char* name) {
  return number_in(fields, name).value_or(0);
}

int64_t whole_or(const nlohmann::json& fields, const char* name, int64_t otherwise) {
  const auto found = fields.find(name);
  return found == fields.end() ? otherwise : whole_number(*found);
}

void read_later_columns(const nlohmann::json& fields, StepRecord& record) {
  record.skipped_steps = whole_or(fields, "skipped_steps", 0);
  record.spikes = whole_or(fields, "spikes", 0);
  record.fp8_saturated = number_or_zero(fields, "fp8_saturated");
  record.memory_bytes = whole_or(fields, "memory_bytes", 0);
  record.ranks.slowest = whole_or(fields, "slowest_rank", 0);
  record.ranks.longest_waiting = whole_or(fields, "longest_waiting_rank", 0);
  for (const auto& column : kRankColumns) {
    record.ranks.*column.value = number_or_zero(fields, column.name);
  }
}

void read_run(const nlohmann::json& fields, RunIdentity& run) {
  if (run.parameters == 0) run.first_step = whole_or(fields, "first_step", 0);
  run.target_accuracy = fields.at("target_accuracy").get<double>();
  run.name = fields.value("name", "");
  run.device = fields.value("device", "");
  run.world_size = whole_or(fields, "world_size", 1);
  run.max_steps = whole_or(fields, "max_steps", 0);
  run.peak_flops_per_second = number_or_zero(fields, "peak_flops_per_second");
  run.model = fields.value("model", "");
  run.parameters = whole_or(fields, "parameters", 0);
  run.vocab_size = whole_or(fields, "vocab_size", 0);
  run.global_batch_seqs = whole_or(fields, "global_batch_seqs", 0);
  run.start_weights = fields.value("start_weights", "");
}

void read_record(const nlohmann::json& fields, Metrics& metrics) {
  const std::string kind = fields.at("kind").get<std::string>();
  const int64_t time_ms = whole_or(fields, "time_ms", 0);
  metrics.last_time_ms = std::max(metrics.last_time_ms, time_ms);
  if (kind == "run") {
    read_run(fields, metrics.run);
    metrics.stop.reset();
  }
  if (kind == "data") {
    metrics.run.constant_answer_accuracy = fields.at("constant_answer_accuracy").get<double>();
    metrics.run.target_accuracy = fields.value("target_accuracy", metrics.run.target_accuracy);
  }
  if (kind == "step") {
    StepRecord record = from_json(fields, kStepColumns);
    record.nsp_loss = number_in(fields, "nsp_loss");
    read_later_columns(fields, record);
    append_replacing(record, metrics.steps);
    // Of the same start, evaluations come behind their steps.
    std::erase_if(metrics.evals, [&](const EvalRecord& eval) { return eval.step > record.step; });
  }
  if (kind == "eval") {
    EvalRecord record = from_json(fields, kEvalColumns);
    record.nsp_accuracy = number_in(fields, "nsp_accuracy");
    append_replacing(record, metrics.evals);
  }
  if (kind == "event") metrics.events.push_back({time_ms, fields.at("text").get<std::string>()});
  if (kind == "stop") {
    metrics.stop = {.status = fields.at("status").get<std::string>()};
    if (fields.contains("exit_code")) {
      metrics.stop->exit_code = static_cast<int>(whole_number(fields["exit_code"]));
    }
  }
}

void add_lines(const std::string& text, Metrics& metrics) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    try {
      read_record(parse_json(line), metrics);
      ++metrics.records;
    } catch (const Json::exception&) {
      ++metrics.unreadable_lines;
    }
  }
}

}  // namespace

MetricsFile::MetricsFile(const std::string& path) : file_(path) {}

void MetricsFile::write(const char* kind, const Json& fields) {
  Json line = {{"kind", kind}, {"time_ms", now_ms()}};
  line.update(fields);
  file_.append_line(line.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void MetricsFile::run(const Config& config, const RunFacts& facts) {
  write("run", {{"name", config.log.run_name},
                {"model", config.model.name},
                {"device", facts.device},
                {"attention", facts.kernels.attention},
                {"gelu_gemms", facts.kernels.gelu_gemms},
                {"graphs", facts.kernels.graphs},
                {"fp8_gemms", facts.kernels.fp8_gemms},
                {"world_size", facts.world_size},
                {"parameters", facts.parameters},
                {"vocab_size", config.model.vocab_size},
                {"start_weights", config.checkpoint.init},
                {"global_batch_seqs", config.train.global_batch_seqs},
                {"max_steps", facts.max_steps},
                {"peak_flops_per_second", facts.peak_flops_per_second},
                {"first_step", facts.first_step},
                {"target_accuracy", config.train.target_accuracy}});
}

void MetricsFile::data(const DataFacts& facts) {
  write("data", {{"train_samples_per_epoch", facts.train_samples_per_epoch},
                 {"eval_samples", facts.eval_samples},
                 {"constant_answer_accuracy", facts.constant_answer_accuracy},
                 {"target_accuracy", facts.target_accuracy}});
}

void MetricsFile::step(const StepRecord& record) {
  Json fields = to_json(record, kStepColumns);
  fields["nsp_loss"] = number_or_null(record.nsp_loss);
  add_later_columns(record, fields);
  write("step", fields);
}

void MetricsFile::eval(const EvalRecord& record) {
  Json fields = to_json(record, kEvalColumns);
  fields["nsp_accuracy"] = number_or_null(record.nsp_accuracy);
  write("eval", fields);
}

void MetricsFile::event(const std::string& text) { write("event", {{"text", text}}); }

void MetricsFile::stop(const RunEnd& end) {
  Json fields = {{"status", end.status},
                 {"samples", end.samples},
                 {"exit_code", static_cast<int>(end.exit_code)}};
  if (const std::optional<double> each = end.joules_per_sample()) {
    fields["joules"] = *end.joules;
    fields["joules_per_sample"] = *each;
  }
  write("stop", fields);
}

RunIdentity run_identity(const Config& config, const RunFacts& facts) {
  return {.name = config.log.run_name,
          .device = facts.device,
          .world_size = facts.world_size,
          .max_steps = facts.max_steps,
          .peak_flops_per_second = facts.peak_flops_per_second,
          .model = config.model.name,
          .parameters = facts.parameters,
          .vocab_size = config.model.vocab_size,
          .global_batch_seqs = config.train.global_batch_seqs,
          .first_step = facts.first_step,
          .target_accuracy = config.train.target_accuracy,
          .start_weights = config.checkpoint.init};
}

const Metrics& MetricsFollower::look() {
  struct stat now {};
  std::ifstream file;
  if (stat(path_.c_str(), &now) == 0 && S_ISREG(now.st_mode)) file.open(path_, std::ios::binary);
  if (!file.is_open()) {
    fail(ExitCode::kData, path_, ": cannot be read; give a run folder with its metrics.jsonl");
  }
  if (now.st_ino != file_id_ || now.st_size < read_bytes_) {
    metrics_ = {};
    read_bytes_ = 0;
    file_id_ = now.st_ino;
  }
  file.seekg(read_bytes_);
  std::string text(std::istreambuf_iterator<char>(file), {});
  text.resize(text.rfind('\n') + 1);  // npos + 1 is 0
  read_bytes_ += std::ssize(text);
  add_lines(text, metrics_);
  return metrics_;
}

Metrics read_metrics(const std::string& path) {
  Metrics metrics;
  add_lines(read_text_file(path), metrics);
  if (metrics.records == 0) {
    fail(ExitCode::kData, path, ": no metrics record in ", metrics.unreadable_lines,
         " lines, want one JSON object per line as metrics.jsonl of a run folder has");
  }
  if (metrics.unreadable_lines > 0) {
    log_line(LogLevel::kWarning, concat(path, ": ", metrics.unreadable_lines,
                                        " lines are no metrics record and were left out"));
  }
  return metrics;
}

}  // namespace bertha

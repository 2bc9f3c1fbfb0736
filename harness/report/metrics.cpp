#include "harness/report/metrics.h"

#include <array>

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

}  // namespace bertha

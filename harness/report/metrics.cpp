#include "harness/report/metrics.h"

namespace bertha {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

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
  const RankSummary& ranks = record.ranks;
  write("step", {{"step", record.step},
                 {"samples", record.samples},
                 {"loss", record.loss},
                 {"mlm_loss", record.mlm_loss},
                 {"mlm_accuracy", record.mlm_accuracy},
                 {"learning_rate", record.learning_rate},
                 {"gradient_norm", record.gradient_norm},
                 {"loss_scale", record.loss_scale},
                 {"step_ms", record.step_ms},
                 {"data_wait_ms", record.data_wait_ms},
                 {"forward_ms", record.forward_ms},
                 {"backward_ms", record.backward_ms},
                 {"communication_ms", record.communication_ms},
                 {"optimizer_ms", record.optimizer_ms},
                 {"seqs_per_second", record.seqs_per_second},
                 {"tokens_per_second", record.tokens_per_second},
                 {"flops_per_second", record.flops_per_second},
                 {"token_imbalance", record.token_imbalance},
                 {"nsp_loss", number_or_null(record.nsp_loss)},
                 {"skipped_steps", record.skipped_steps},
                 {"spikes", record.spikes},
                 {"fp8_saturated", record.fp8_saturated},
                 {"memory_bytes", record.memory_bytes},
                 {"slowest_rank", ranks.slowest},
                 {"longest_waiting_rank", ranks.longest_waiting},
                 {"slowest_rank_compute_ms", ranks.slowest_compute_ms},
                 {"other_ranks_compute_ms", ranks.others_compute_ms},
                 {"longest_data_wait_ms", ranks.longest_wait_ms},
                 {"mean_data_wait_ms", ranks.mean_wait_ms},
                 {"power_watts", ranks.power_watts},
                 {"lowest_sm_mhz", ranks.lowest_sm_mhz}});
}

void MetricsFile::eval(const EvalRecord& record) {
  write("eval", {{"step", record.step},
                 {"samples", record.samples},
                 {"mlm_accuracy", record.mlm_accuracy},
                 {"mlm_loss", record.mlm_loss},
                 {"seconds", record.seconds},
                 {"seqs_per_second_since_last", record.seqs_per_second_since_last},
                 {"nsp_accuracy", number_or_null(record.nsp_accuracy)}});
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

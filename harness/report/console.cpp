#include "harness/report/console.h"

#include "harness/report/text_format.h"
#include "kernels/base/error.h"
#include "kernels/base/plural.h"

namespace bertha {
namespace {

constexpr size_t kLineColumns = 160;

std::string time_split(const StepRecord& record) {
  return concat(ms_text(record.step_ms), " ms (data ", ms_text(record.data_wait_ms), " fwd ",
                ms_text(record.forward_ms), " bwd ", ms_text(record.backward_ms), " comm ",
                ms_text(record.communication_ms), " opt ", ms_text(record.optimizer_ms), ")");
}

std::string skips(const StepRecord& record) {
  return record.skipped_steps == 0 ? "" : concat(" skip ", record.skipped_steps);
}

std::string utilization(const StepRecord& record, const RunFacts& facts) {
  if (facts.peak_flops_per_second <= 0 || record.flops_per_second <= 0) return "";
  return concat(" MFU ", fixed_text(100 * record.flops_per_second / facts.peak_flops_per_second, 0),
                "%");
}

}  // namespace

std::string step_line(const StepRecord& record, const RunFacts& facts) {
  const std::string start = concat(
      "step ", record.step, "/", facts.max_steps, " smp ",
      scaled_text(static_cast<double>(record.samples)), " loss ", fixed_text(record.loss, 3),
      " mlm ", fixed_text(record.mlm_accuracy, 3), " lr ", exponent_text(record.learning_rate),
      " gn ", scaled_text(record.gradient_norm), skips(record), " | ", time_split(record), " ",
      scaled_text(record.seqs_per_second), " seq/s");
  const std::string end = concat(" ETA ", duration_text(record.eta_seconds));
  // The columns left go to what metrics.jsonl holds anyway.
  std::string middle;
  for (const std::string& part :
       {concat(" ", scaled_text(record.tokens_per_second), " tok/s"), utilization(record, facts)}) {
    if (start.size() + middle.size() + part.size() + end.size() <= kLineColumns) middle += part;
  }
  return start + middle + end;
}

std::string eval_line(const EvalRecord& record, double target_accuracy) {
  const std::string target =
      target_accuracy > 0 ? concat(" (target ", fixed_text(target_accuracy, 4), ")") : "";
  return concat("eval step ", record.step, " samples ",
                scaled_text(static_cast<double>(record.samples)), " mlm accuracy ",
                fixed_text(record.mlm_accuracy, 4), target, " loss ",
                fixed_text(record.mlm_loss, 3), " nsp ", fixed_text(record.nsp_accuracy, 3), " | ",
                fixed_text(record.seconds, 1), " s");
}

std::string start_line(const Config& config, const RunFacts& facts) {
  const TrainConfig& train = config.train;
  // What a constant answer scores is not known before the data are opened.
  const std::string least = train.target_times_constant > 0 ? "at least " : "";
  const std::string until = train.target_accuracy > 0 ? concat("to accuracy ", least,
                                                               fixed_text(train.target_accuracy, 4),
                                                               " or step ", facts.max_steps)
                                                      : concat("to step ", facts.max_steps);
  const std::string kernels = facts.attention.empty() ? ""
                                                      : concat(", attention ", facts.attention,
                                                               ", GELU GEMMs ", facts.gelu_gemms);
  const std::string graphs = facts.graphs ? ", graphs" : "";
  const std::string fp8 = facts.fp8_gemms.empty() ? "" : ", fp8 GEMMs " + facts.fp8_gemms;
  return concat(config.model.name, ", ", scaled_text(static_cast<double>(facts.parameters)),
                " parameters, on ", facts.device, ", ", facts.world_size, " ",
                plural(facts.world_size, "rank"), kernels, graphs, fp8, "; ",
                config.train.global_batch_seqs, " sequences per step, from step ", facts.first_step,
                " ", until);
}

std::string data_line(const TrainConfig& train, const DataFacts& facts) {
  const std::string target =
      facts.target_accuracy > train.target_accuracy
          ? concat("; target accuracy ", fixed_text(facts.target_accuracy, 4), ", ",
                   scaled_text(train.target_times_constant), " times the best constant answer")
          : "";
  return concat(facts.train_samples_per_epoch, " training sequences per epoch, ",
                facts.eval_samples, " for evaluation", target);
}

}  // namespace bertha

#include <cmath>
#include <filesystem>

#include "data/files/text_file.h"
#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/weight_source.h"
#include "harness/comm/watchdog.h"
#include "harness/config/run_plan.h"
#include "harness/report/report.h"
#include "harness/report/text_format.h"
#include "harness/train/data_check.h"
#include "harness/train/data_source.h"
#include "harness/train/evaluate.h"
#include "harness/train/loop.h"
#include "harness/train/session.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

/// Sets the run's scales for an fp8 evaluation: the weights alone do not contain them.
void load_scales(const std::string& checkpoint, Bert& model) {
  if (!model.needs_scales()) return;
  const std::string path = checkpoint + "/state.json";
  std::vector<int> exponents;
  if (std::filesystem::exists(path)) {
    exponents = training_state_from_json(read_text_file(path), path).fp8_scale_exponents;
  }
  if (exponents.empty()) {
    fail(ExitCode::kData, checkpoint, ": has no fp8 scales, want a checkpoint of a run with ",
         "train.precision fp8; set train.precision to auto to evaluate this one.");
  }
  model.set_scale_exponents(exponents);
}

Report report_of(const std::string& checkpoint, const EvalResult& result,
                 double constant_answer_accuracy, double target_accuracy) {
  const bool missed = result.mlm_accuracy < target_accuracy;
  const std::string target =
      target_accuracy <= 0
          ? ""
          : fmt::format("  (target {:.4f} {})", target_accuracy, missed ? "missed" : "reached");
  Report report(25, 0);
  report.row("checkpoint", "{}", figure("checkpoint", checkpoint));
  report.row("sequences", "{}", figure("seqs", result.seqs, grouped_text));
  report.row("masked tokens", "{}", figure("masked_tokens", result.masked_tokens, grouped_text));
  report.row("masked-token accuracy", "{:.4f}{}", figure("mlm_accuracy", result.mlm_accuracy),
             target);
  report.row("masked-token loss", "{:.4f}", figure("mlm_loss", result.mlm_loss));
  report.row("perplexity", "{:.4g}", figure("perplexity", std::exp(result.mlm_loss)));
  report.put("nsp_accuracy", nullptr);
  if (result.nsp_accuracy) {
    report.row("next-sentence accuracy", "{:.4f}", figure("nsp_accuracy", *result.nsp_accuracy));
  }
  report.row("constant answer scores", "{:.4f}",
             figure("constant_answer_accuracy", constant_answer_accuracy));
  report.put("target_accuracy", target_accuracy);
  return report;
}

}  // namespace

int run_evaluation(const Config& config, const std::string& checkpoint,
                   const std::string& json_path, World& world) {
  const auto watchdog = make_watchdog(world, config.train.hang_timeout_minutes * 60);
  RankBoard& board = world.board();
  check_eval_path(config);
  check_eval_vocabulary(config, locate_weights(checkpoint).folder);
  Config eval_config = config;
  eval_config.checkpoint.init = checkpoint;
  // The buffers need to fit evaluation batches only.
  eval_config.train.global_batch_seqs = 1;
  eval_config.train.accumulation_steps = 1;
  Session session(eval_config, world);
  board.enter(0, RunPhase::kReadWeights);
  session.initialize_weights();
  load_scales(checkpoint, *session.model);
  board.enter(0, RunPhase::kOpenData);
  const std::vector<HostBatch> batches =
      read_eval_batches(eval_config, world.rank(), world.size(), session.batch_memory);
  const std::unique_ptr<Transport> transport = world.make_transport();
  const EvalSetFacts facts =
      describe_eval_set(batches, eval_config.model.vocab_size, *transport, eval_config.data.eval);
  board.enter(0, RunPhase::kEvaluate);
  EvalResult result = evaluate(*session.model, batches, session.parts(),
                               session.backend->collectives(), [&board] { board.beat(); });
  if (!std::isfinite(result.mlm_loss)) {
    fail(ExitCode::kNumeric, checkpoint, ": the loss over ", config.data.eval, " is ",
         result.mlm_loss, ", so accuracies mean nothing: the weights are finite but too large for ",
         "the model's arithmetic; evaluate another checkpoint");
  }
  if (config.train.nsp_weight == 0) result.nsp_accuracy.reset();
  board.enter(0, RunPhase::kFinish);

  const double target = target_of(config.train, facts.constant_answer_accuracy);
  const bool missed = target > 0 && result.mlm_accuracy < target;
  const ExitCode code = missed ? ExitCode::kTargetMissed : ExitCode::kSuccess;
  if (world.rank() == 0) {
    if (config.data.synthetic) {
      log_line(LogLevel::kWarning,
               "the data are synthetic (data.synthetic): accuracies mean nothing");
    }
    write_report(report_of(checkpoint, result, facts.constant_answer_accuracy, target), json_path,
                 "eval", code);
  }
  return static_cast<int>(code);
}

}  // namespace bertha

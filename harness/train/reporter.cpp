#include "harness/train/reporter.h"

#include <memory>

#include "harness/config/terminal.h"
#include "harness/mlperf/log_writer.h"
#include "harness/report/console.h"
#include "harness/report/metrics.h"
#include "harness/report/tfevents.h"
#include "harness/train/curve_checks.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

class FileReporter final : public Reporter {
 public:
  FileReporter(const Config& config, const std::string& run_dir)
      : config_(config),
        run_dir_(run_dir),
        mlperf_path_(next_mlperf_log_path(run_dir + "/mllog")),
        mlperf_(std::make_unique<MlperfLog>(mlperf_path_)),
        metrics_(std::make_unique<MetricsFile>(run_dir + "/metrics.jsonl")) {
    if (config.log.tensorboard) tensorboard_ = std::make_unique<TensorBoardFile>(run_dir + "/tb");
  }

  void init_start() override { mlperf_->init_start(config_); }

  void init_stop(const RunFacts& facts) override {
    facts_ = facts;
    checks_ = CurveChecks(config_.model.vocab_size, facts.first_step,
                          facts.has_random_head ? "" : config_.checkpoint.init);
    mlperf_->init_stop(config_, facts);
    metrics_->run(config_, facts);
    log_line(LogLevel::kInfo, start_line(config_, facts));
    if (tensorboard_) tensorboard_->session_start(facts.first_step + 1);
    if (mlperf_path_ != run_dir_ + "/mllog/result_0.txt") {
      event(
          concat("this run folder contains an earlier start, so the MLLOG records are written to ",
                 mlperf_path_,
                 config_.train.target_accuracy > 0 ? " and are not a valid submission" : ""));
    }
  }

  void run_start() override {
    mlperf_->run_start(facts_.first_step * config_.train.global_batch_seqs);
  }

  void data_opened(const DataFacts& facts) override {
    data_facts_ = facts;
    metrics_->data(facts);
    log_line(LogLevel::kInfo, data_line(config_.train, facts));
  }

  void step(const StepRecord& record) override {
    metrics_->step(record);
    log_line(LogLevel::kInfo, step_line(record, facts_, log_columns()));
    for (const std::string& sentence : checks_.after_step(record)) warning(sentence);
    if (!tensorboard_) return;
    tensorboard_->scalars(record.step, {{"train/loss", record.loss},
                                        {"train/mlm_loss", record.mlm_loss},
                                        {"train/nsp_loss", record.nsp_loss},
                                        {"train/mlm_accuracy", record.mlm_accuracy},
                                        {"train/learning_rate", record.learning_rate},
                                        {"train/gradient_norm", record.gradient_norm},
                                        {"train/loss_scale", record.loss_scale},
                                        {"speed/step_ms", record.step_ms},
                                        {"speed/data_wait_ms", record.data_wait_ms},
                                        {"speed/seqs_per_second", record.seqs_per_second},
                                        {"speed/tokens_per_second", record.tokens_per_second},
                                        {"speed/token_imbalance", record.token_imbalance}});
  }

  void eval_start(int64_t samples) override { mlperf_->eval_start(samples); }

  void eval_stop(const EvalRecord& record) override {
    mlperf_->eval_stop(record);
    metrics_->eval(record);
    log_line(LogLevel::kInfo, eval_line(record, data_facts_.target_accuracy, log_columns()));
    for (const std::string& sentence : checks_.after_eval(record)) warning(sentence);
    if (!tensorboard_) return;
    tensorboard_->scalars(record.step, {{"eval/mlm_accuracy", record.mlm_accuracy},
                                        {"eval/mlm_loss", record.mlm_loss},
                                        {"eval/nsp_accuracy", record.nsp_accuracy},
                                        {"eval/seconds", record.seconds}});
  }

  void event(const std::string& text) override {
    metrics_->event(text);
    log_line(LogLevel::kInfo, text);
  }

  void warning(const std::string& text) override {
    metrics_->event(text);
    log_line(LogLevel::kWarning, text);
  }

  void failure(const std::string& text) override { metrics_->event(text); }

  void run_stop(const RunEnd& end) override {
    BERTHA_CHECK(end.status == "success" || end.status == "aborted", "status \"", end.status, "\"");
    mlperf_->run_stop(end, data_facts_.eval_samples);
    metrics_->stop(end);
  }

  void finish() override {
    mlperf_.reset();
    tensorboard_.reset();
    metrics_.reset();
  }

 private:
  Config config_;
  std::string run_dir_;
  std::string mlperf_path_;
  RunFacts facts_;
  DataFacts data_facts_;
  CurveChecks checks_;
  std::unique_ptr<MlperfLog> mlperf_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<TensorBoardFile> tensorboard_;
};

}  // namespace

std::unique_ptr<Reporter> make_reporter(const Config& config, const std::string& run_dir,
                                        int rank) {
  if (rank != 0) return std::make_unique<Reporter>();
  return std::make_unique<FileReporter>(config, run_dir);
}

}  // namespace bertha

#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "data/files/text_file.h"
#include "harness/config/config.h"
#include "harness/report/files.h"
#include "harness/report/run_records.h"
#include "tests/support/temp_folder.h"

namespace bertha::test {

inline std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(read_text_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

/// A config with no value at its default where the log could confuse it with another.
inline Config test_config() {
  Config config;
  config.model.name = "bert-tiny";
  config.train.seed = 4711;
  config.train.global_batch_seqs = 448;
  config.train.accumulation_steps = 2;
  config.train.max_steps = 6700;
  config.train.target_accuracy = 0.72;
  config.data.max_masked_per_seq = 75;
  config.optimizer.base_learning_rate = 3.5e-4;
  config.optimizer.warmup_steps = 100;
  config.optimizer.start_warmup_step = -25;
  config.optimizer.schedule_steps = 7100;
  config.mlperf.division = Division::kClosed;
  config.optimizer.decay_degree = 1.5;
  config.optimizer.beta_1 = 0.83;
  config.optimizer.beta_2 = 0.925;
  config.optimizer.epsilon = 2e-6;
  config.optimizer.weight_decay = 0.0166629;
  config.mlperf.submission_org = "A \"quoted\" org";
  config.mlperf.submission_platform = "2x\ttab";
  config.mlperf.status = SubmissionStatus::kOnprem;
  config.mlperf.cache_cleared = true;
  return config;
}

inline DataFacts test_data_facts() {
  return {.train_samples_per_epoch = 156'725'653,
          .eval_samples = 10000,
          .constant_answer_accuracy = 0.05,
          .target_accuracy = 0.72};
}

inline RunFacts test_facts() {
  RunFacts facts;
  facts.world_size = 8;
  facts.parameters = 340'000'000;
  facts.max_steps = 6700;
  facts.masked_per_seq = 75;
  facts.device = "cpu";
  facts.tensor_names = {"bert/embeddings/word_embeddings", "cls/predictions/output_bias"};
  return facts;
}

/// Every field differs from every other.
inline StepRecord test_step(int64_t step) {
  const double at = static_cast<double>(step);
  StepRecord record;
  record.step = step;
  record.samples = step * 448;
  record.loss = 11.0 - 0.1 * at;
  record.mlm_loss = 10.25 - 0.1 * at;
  record.nsp_loss = 0.75;
  record.mlm_accuracy = 0.01 * at;
  record.learning_rate = 3.5e-4 - 1e-6 * at;
  record.gradient_norm = 0.93;
  record.loss_scale = 1024;
  record.skipped_steps = 2;
  record.step_ms = 61.5;
  record.data_wait_ms = 0.25;
  record.forward_ms = 18.5;
  record.backward_ms = 35.125;
  record.communication_ms = 4.5;
  record.optimizer_ms = 3.125;
  record.seqs_per_second = 6270;
  record.tokens_per_second = 1.5e6;
  record.flops_per_second = 5e12;
  record.eta_seconds = 211;
  record.token_imbalance = 1.0625;
  record.fp8_saturated = 3e-6;
  record.ranks = {.slowest = 5,
                  .slowest_compute_ms = 53.5,
                  .others_compute_ms = 50,
                  .longest_waiting = 2,
                  .longest_wait_ms = 0.5,
                  .mean_wait_ms = 0.25,
                  .power_watts = 5200,
                  .lowest_sm_mhz = 1755};
  record.memory_bytes = int64_t{64} << 30;
  return record;
}

inline EvalRecord test_eval(int64_t step, double accuracy) {
  EvalRecord record;
  record.step = step;
  record.samples = step * 448;
  record.mlm_accuracy = accuracy;
  record.mlm_loss = 2.125;
  record.nsp_accuracy = 0.875;
  record.seconds = 2.5;
  record.seqs_per_second_since_last = 6100;
  return record;
}

/// As where train.nsp_weight is 0.
inline StepRecord without_next_sentence(StepRecord record) {
  record.nsp_loss.reset();
  return record;
}

inline EvalRecord without_next_sentence(EvalRecord record) {
  record.nsp_accuracy.reset();
  return record;
}

}  // namespace bertha::test

#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/harness/cli/run_program.h"
#include "tests/support/temp_folder.h"

namespace bertha {

/// Tests of `bertha bench NAME --config SMALL_MODEL --json FILE OPTIONS`.
class BenchFixture : public ::testing::Test {
 protected:
  /// `start`: the name and options of every run.
  explicit BenchFixture(const std::string& start) : start_(start) {}

  std::string line(const std::string& options) const {
    return "bench " + start_ + " --config " + config_ + " --json " + json_ + " " + options;
  }
  Ran run(const std::string& options) const { return run_line(line(options), folder_.path("")); }
  Ran run_on_two_ranks(const std::string& options) const {
    return run_line_on_ranks(2, line(options), folder_.path(""));
  }
  /// What the last run measured.
  nlohmann::json json() const {
    std::ifstream file(json_);
    return nlohmann::json::parse(file);
  }

  TempFolder folder_;
  std::string json_ = folder_.path("figures.json");
  /// Of a small model on the CPU.
  std::string config_ = folder_.write(
      "tiny.yaml",
      "model: {name: tiny, layers: 2, hidden: 32, heads: 4, feed_forward: 64, vocab_size: 300,\n"
      "        max_positions: 64, attention_dropout: 0.25}\n"
      "data: {max_seq_tokens: 64, max_masked_per_seq: 10, train: /none, eval: /none}\n"
      "train: {global_batch_seqs: 8, threads_per_rank: 1, backend: cpu}\n");

 private:
  std::string start_;
};

}  // namespace bertha

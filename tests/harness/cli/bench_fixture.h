#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/harness/cli/run_program.h"
#include "tests/support/temp_folder.h"

namespace bertha {

/// Tests of `bertha bench NAME --config SMALL_MODEL --json FILE --repeats 3 OPTIONS`.
class BenchFixture : public ::testing::Test {
 protected:
  explicit BenchFixture(const std::string& name, const std::vector<std::string>& options = {})
      : words_{"bench", name, "--config", config_, "--json", json_, "--repeats", "3"} {
    words_.insert(words_.end(), options.begin(), options.end());
  }

  Ran run(const std::vector<std::string>& more) const {
    std::vector<std::string> words = words_;
    words.insert(words.end(), more.begin(), more.end());
    return run_bertha_program(words, folder_.path(""));
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
      "train: {threads_per_rank: 1, backend: cpu}\n");

 private:
  std::vector<std::string> words_;
};

}  // namespace bertha

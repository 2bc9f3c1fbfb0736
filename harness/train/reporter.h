#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "harness/config/config.h"
#include "harness/report/run_records.h"

namespace bertha {

/// Writes rank 0's reports of a run: console, metrics.jsonl, TensorBoard events and MLLOG. This
/// base class is silent, for the other ranks. The order of calls follows the benchmark's rules:
/// init_start, init_stop, run_start, data_opened, steps and evals, run_stop, finish.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void init_start() {}
  virtual void init_stop(const RunFacts&) {}
  virtual void run_start() {}
  virtual void data_opened(const DataFacts&) {}
  virtual void step(const StepRecord&) {}
  virtual void eval_start(int64_t /*samples*/) {}
  virtual void eval_stop(const EvalRecord&) {}
  /// Writes to console and metrics.jsonl: saved, resumed, ...
  virtual void event(const std::string& /*text*/) {}
  /// The same, as a warning.
  virtual void warning(const std::string& /*text*/) {}
  /// Writes the error that ends the run to metrics.jsonl alone; the console shows it anyway.
  virtual void failure(const std::string& /*text*/) {}
  virtual void run_stop(const RunEnd&) {}
  /// Closes all files.
  virtual void finish() {}
};

/// `run_dir` exists. Rank 0 writes; for `rank != 0` the reporter is silent.
std::unique_ptr<Reporter> make_reporter(const Config& config, const std::string& run_dir, int rank);

}  // namespace bertha

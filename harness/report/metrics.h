#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "harness/config/config.h"
#include "harness/report/files.h"
#include "harness/report/run_records.h"

namespace bertha {

/// metrics.jsonl: one JSON object per line with "kind" (run, step, eval, event, stop) and
/// "time_ms". A resumed run appends; its steps replace earlier steps of the same number. A number
/// that is not finite is null; so are nsp_loss and nsp_accuracy if train.nsp_weight is 0.
class MetricsFile {
 public:
  explicit MetricsFile(const std::string& path);

  void run(const Config& config, const RunFacts& facts);
  void data(const DataFacts& facts);
  void step(const StepRecord& record);
  void eval(const EvalRecord& record);
  void event(const std::string& text);
  void stop(const RunEnd& end);

 private:
  void write(const char* kind, const nlohmann::ordered_json& fields);

  AppendFile file_;
};

}  // namespace bertha

#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <source_location>
#include <string>

#include "harness/config/config.h"
#include "harness/report/files.h"
#include "harness/report/run_records.h"

namespace bertha {

/// The benchmark's own log: one ":::MLLOG {json}" line per record, complete for BERT in the closed
/// division of rule set 5.0.0, in the order of the published logs. One method per stage of a run.
///
/// Writes    appends whole lines to one file; each record has the source line that wrote it and a
///           time that never decreases.
/// Needs     calls in the order of declaration; evaluations repeat.
/// Errors    Error(kData) if the file cannot be written.
/// Source    github.com/mlcommons/logging, mlperf_logging/mllog and
///           compliance_checker/training_5.0.0.
class MlperfLog {
 public:
  using Clock = std::function<int64_t()>;  // milliseconds since the epoch

  explicit MlperfLog(const std::string& path, Clock clock = steady_clock_ms());

  void init_start(const Config& config);
  void init_stop(const Config& config, const RunFacts& facts);
  /// `first_sample` is 0, or the number of samples that a resumed run has already trained.
  void run_start(int64_t first_sample);
  void eval_start(int64_t samples);
  void eval_stop(const EvalRecord& record);
  /// Energy has no key in the benchmark: if known, it is written in a tracked_stats record.
  void run_stop(const RunEnd& end, int64_t eval_samples);

 private:
  using Json = nlohmann::ordered_json;
  using Place = std::source_location;

  void point(const char* key, const Json& value, const Json& metadata = Json::object(),
             Place place = Place::current());
  void start(const char* key, const Json& metadata = Json::object(),
             Place place = Place::current());
  void stop(const char* key, const Json& metadata = Json::object(), Place place = Place::current());
  void write(const char* event_type, const char* key, const Json& value, const Json& metadata,
             const Place& place);
  void facts_of_submission(const Config& config);
  void facts_of_batch(const Config& config, const RunFacts& facts);
  void facts_of_optimizer(const OptimizerConfig& optimizer);

  AppendFile file_;
  Clock clock_;
};

/// result_0.txt for a run's first process; result_0.resume1.txt, ... for later ones in the same
/// folder: a resumed run is not a valid submission, so its records are never added to the first
/// file.
std::string next_mlperf_log_path(const std::string& folder);

/// A JSON value as text with Python's spacing: {"a": 1, "b": [2, 3]}.
std::string spaced_json(const nlohmann::ordered_json& value);

}  // namespace bertha

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/config/config.h"
#include "harness/report/files.h"
#include "harness/report/run_records.h"

namespace bertha {

/// metrics.jsonl: one JSON object per line with "kind" (run, step, eval, event, stop) and
/// "time_ms". A resumed run appends; its steps replace those of the same number before it (see
/// read_metrics). A number that is not finite is null, and so are nsp_loss and nsp_accuracy where
/// train.nsp_weight is 0.
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

/// What the newest start of a run says about itself. Fields that older files lack keep their
/// default.
struct RunIdentity {
  std::string name = {};  // log.run_name
  std::string device = {};
  int64_t world_size = 1;
  int64_t max_steps = 0;             // as RunFacts
  double peak_flops_per_second = 0;  // of all devices; 0 = not known
  std::string model = {};
  int64_t parameters = 0;
  int64_t vocab_size = 0;
  int64_t global_batch_seqs = 0;
  int64_t first_step = 0;          // of the first start: above 0 when the file begins with a resume
  double target_accuracy = 0;      // 0 = none
  std::string start_weights = {};  // checkpoint.init; "" = drawn at random
  double constant_answer_accuracy = 0;  // of the best constant answer on the evaluation set
};

struct EventRecord {
  int64_t time_ms = 0;  // since the epoch
  std::string text = {};
};

/// How the newest start of a run ended.
struct StopRecord {
  std::string status = {};            // "success" or "aborted"
  std::optional<int> exit_code = {};  // none in files of before
};

/// What metrics.jsonl says, in step order, without what a resumed run did again.
struct Metrics {
  RunIdentity run;
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;
  std::vector<EventRecord> events;  // of all starts
  std::optional<StopRecord> stop;   // none = it goes on, or was killed
  int64_t last_time_ms = 0;         // of the last record
  int64_t records = 0;
  int64_t unreadable_lines = 0;  // a killed process may leave one unfinished
};

/// What a run about to start would write.
RunIdentity run_identity(const Config& config, const RunFacts& facts);

/// Follows a file that may still be written to: each look reads only what was appended since the
/// one before, up to the last whole line. A file that was replaced or cut is read anew.
class MetricsFollower {
 public:
  explicit MetricsFollower(std::string path) : path_(std::move(path)) {}

  /// Everything up to now. Error(kData) when the file cannot be read.
  const Metrics& look();

 private:
  std::string path_;
  Metrics metrics_;
  uint64_t file_id_ = 0;  // inode
  int64_t read_bytes_ = 0;
};

/// Of a whole file. Lines that are no record are left out, with a warning.
///
/// Errors    Error(kData) when the file cannot be read or holds no record.
Metrics read_metrics(const std::string& path);

}  // namespace bertha

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/mlperf/log_check.h"

namespace bertha {

/// One record of a benchmark log.
struct MlperfRecord {
  int64_t line = 0;  // counted from 1
  double time_ms = 0;
  std::string key = {};
  nlohmann::json value = {};
  nlohmann::json metadata = {};
};

struct MlperfRecords {
  std::vector<MlperfRecord> records = {};
  std::vector<LogFinding> findings = {};  // lines that hold a record that cannot be read
};

/// Reads as the official parser does: lines without ":::MLLOG " are skipped, what precedes it
/// is dropped, bytes are Latin-1.
MlperfRecords parse_mlperf_text(const std::string& text);

}  // namespace bertha

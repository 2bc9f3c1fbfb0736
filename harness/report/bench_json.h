#pragma once

#include <nlohmann/json.hpp>

namespace bertha {

// What the JSON of benchmarks of operations has in common.

/// What was measured, where and when: the begin of a report.
template <class Report>
nlohmann::ordered_json bench_head_json(const Report& report) {
  return {{"model", report.model},
          {"device", report.device},
          {"precision", report.precision},
          {"date", report.date}};
}

/// How the result of a row compares with the reference.
template <class Row>
nlohmann::ordered_json bench_verdict_json(const Row& row) {
  return {{"verified", row.error <= 1}, {"error_over_allowed", row.error}, {"error_in", row.worst}};
}

}  // namespace bertha

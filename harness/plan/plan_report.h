#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/plan/cost_plan.h"
#include "harness/plan/seq_lengths.h"
#include "harness/report/report.h"

namespace bertha {

/// The results of `bertha plan`.
struct PlanFacts {
  PlanRequest request = {};
  CostPlan cost = {};
  int64_t num_samples = 0;  // in data.train; 0 = unknown
  LengthHistogram lengths = {};
  std::string lengths_source = {};
  int64_t eval_seqs = 0;           // per evaluation
  std::string memory_limit = {};   // as written; "" = none
  int64_t memory_limit_bytes = 0;  // 0 = none
  std::optional<MemoryFit> fit = {};
  std::optional<TimeEstimate> time = {};  // none on a CPU or in f32
  std::vector<std::string> missing = {};  // a message per input

  bool fits() const { return memory_limit_bytes == 0 || cost.memory_bytes <= memory_limit_bytes; }
};

/// The JSON also contains every key of the configuration, for `bertha scale`.
Report report_of(const PlanFacts& facts);

}  // namespace bertha

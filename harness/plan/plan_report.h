#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/plan/cost_plan.h"
#include "harness/plan/time_estimate.h"
#include "harness/report/json_report.h"

namespace bertha {

/// All that `bertha plan` finds.
struct PlanFacts {
  CostPlan cost = {};
  int64_t memory_limit_bytes = 0;  // 0 = none
  std::optional<MemoryFit> fit = {};
  std::optional<TimeEstimate> time = {};  // none on a CPU and in f32
  std::vector<std::string> missing = {};  // a sentence for each input

  bool fits() const { return memory_limit_bytes == 0 || cost.memory_bytes <= memory_limit_bytes; }
};

/// Of the names of facts.
inline constexpr size_t kPlanColumns = 30;

/// The figures for write_json_report().
ReportJson plan_json(const PlanFacts& facts);

}  // namespace bertha

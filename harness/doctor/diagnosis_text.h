#pragma once

#include <span>
#include <string>

#include "harness/doctor/diagnosis.h"
#include "harness/report/json_report.h"

namespace bertha {

/// A table with a row per node, the lowest figure of its ranks in each column; a line per trouble;
/// what to do next.
std::string diagnosis_text(const Diagnosis& diagnosis, std::span<const RankFacts> ranks);

/// Verdicts, troubles and the facts of every rank.
ReportJson diagnosis_json(const Diagnosis& diagnosis, std::span<const RankFacts> ranks);

}  // namespace bertha

#pragma once

#include <span>

#include "harness/doctor/diagnosis.h"
#include "harness/report/report.h"

namespace bertha {

/// A table with a row per node, with the lowest figure of its ranks in each column; a line per
/// trouble; what to do next. The JSON contains the facts of every rank.
Report report_of(const Diagnosis& diagnosis, std::span<const RankFacts> ranks);

}  // namespace bertha

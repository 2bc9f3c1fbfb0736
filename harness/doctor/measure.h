#pragma once

#include <string>

#include "harness/comm/world.h"
#include "harness/config/choices.h"
#include "harness/doctor/rank_facts.h"

namespace bertha {

struct MeasureOptions {
  ComputeBackend backend = ComputeBackend::kAuto;
  std::string output_dir = "";  // "" = not measured
};

/// Measures this rank together with all others. All ranks call it with the same options.
///
/// Blocks    some ten seconds.
/// Errors    Error(kEnvironment) if no backend is available; Error(kMemory).
RankFacts measure_rank(const MeasureOptions& options, World& world);

}  // namespace bertha

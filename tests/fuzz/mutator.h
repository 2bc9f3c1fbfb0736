#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace bertha::fuzz {

/// The input of an execution: one of the seeds with up to eight mutations, its checksums mostly
/// repaired. A pure function of the arguments.
std::string mutated(const FuzzTarget& target, const std::vector<std::string>& seeds,
                    uint64_t random_seed, int64_t execution);

}  // namespace bertha::fuzz

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/pipeline/synthetic_steps.h"
#include "harness/comm/world.h"
#include "harness/config/config.h"
#include "kernels/bench/op_cases.h"

namespace bertha {

/// Rank 0 reads the file; all take what it found, or throw its error. Empty for no path.
LengthHistogram read_lengths(const std::string& path, World& world);

// What the benchmarks of operations share: the model's shapes and batches as training has them.

BenchModel bench_model(const Config& config);

/// The batch of the histogram at `lengths_path`, unless that is "" ("histogram"), of sequences at
/// full length ("all 512"), and at a quarter of it ("all 128"). `tokens`: live, of each batch.
std::vector<BenchBatch> bench_batches(const Config& config, const std::string& lengths_path,
                                      int64_t tokens, const Device& device, World& world);

}  // namespace bertha

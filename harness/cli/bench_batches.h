#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/pipeline/synthetic_steps.h"
#include "harness/comm/world.h"
#include "harness/config/config.h"
#include "kernels/bench/op_cases.h"

namespace bertha {

/// Rank 0 reads the file; all ranks return its result or throw its error. Empty without a path.
LengthHistogram read_lengths(const std::string& path, World& world);

// Shared by the benchmarks of operations: the model's shapes, and batches as in training.

BenchModel bench_model(const Config& config);

/// A batch with the histogram at `lengths_path` unless that is "" ("histogram"), one with sequences
/// at full length ("all 512"), and one at a quarter of it ("all 128"). `tokens`: live tokens per
/// batch.
std::vector<BenchBatch> bench_batches(const Config& config, const std::string& lengths_path,
                                      int64_t tokens, const Device& device, World& world);

}  // namespace bertha

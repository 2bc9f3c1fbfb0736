#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/optim/optimizer.h"
#include "kernels/ops/lamb_state.h"

namespace bertha::testing {

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  bool decay = true;
  int64_t norm_parts = 1;
};

/// A table with offsets at multiples of 64, as the model's.
ParamTable table_of(const std::vector<TensorSpec>& tensors);

/// What a run of updates is told. `gradient` gives the flat gradient of one rank as the model would
/// leave it, before the loss scale: its part of the mean over ranks.
struct RunSpec {
  OptimizerConfig config;
  int64_t schedule_steps = 10;
  ParamTable table;
  std::vector<float> weights;  // flat [table.elements]
  std::function<std::vector<float>(int step, int rank, int ranks)> gradient;
  int steps = 5;
  /// Where backward is told to have come, one after the other, descending: what lies below is not
  /// a number then. Empty: the optimizer hears of the gradient only when all of it is there.
  std::vector<int64_t> final_from = {};
};

/// One rank's view of the end of a run; master, m and v gathered from all ranks.
struct RunResult {
  std::vector<float> model_weights;  // [P]
  std::vector<float> master;
  std::vector<float> m;
  std::vector<float> v;
  std::vector<LambState> states;                    // after each step
  std::vector<std::vector<float>> weights_by_step;  // model weights after each step
};

inline constexpr OptimizerName kOptimizers[] = {OptimizerName::kLamb, OptimizerName::kAdamw};

/// Buckets in MiB for ragged_spec: the least that any number of ranks can have, some that no tensor
/// ends with, and one for everything.
inline constexpr double kBucketsMib[] = {1e-6, 0.0078, 0.0301, 100.0};

RunResult run_updates(Device& device, Collectives& collectives, const RunSpec& spec);

/// run_updates on `ranks` threads; results in rank order.
std::vector<RunResult> run_on_threads(int ranks, const RunSpec& spec);

/// Values normal(0, deviation) at the tensors of the table, zero in the gaps.
std::vector<float> random_flat(const ParamTable& table, uint32_t seed, float deviation);

/// Odd sizes, every kind of tensor, and one that lies across every border of 2, 3 and 4 shards and
/// is the last that backward finishes.
RunSpec ragged_spec();

}  // namespace bertha::testing

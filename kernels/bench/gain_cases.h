#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/bench/op_bench.h"
#include "kernels/bench/op_cases.h"
#include "kernels/ops/lamb_state.h"

namespace bertha {

/// One technique at operations of the step, off and on, over the same tensors: what is fused in the
/// kernels, and the same composed of other operations.
struct GainCase {
  std::string row;  // as in the table of `bertha bench gains`
  OpCase off;
  OpCase on;
  std::vector<size_t> results = {};  // tensors that both leave alike, up to rounding
  // To each row of the results, in any order, each rounded; empty: both leave equal values.
  std::vector<int64_t> additions = {};
  int64_t calls_per_layer = 0;
  int64_t calls_per_micro_batch = 0;  // beside those
  int64_t calls_per_step = 0;         // beside both
  bool is_compared = false;           // before it is timed, as disagreement() does
};

/// At the shapes of the model and the batch. Nothing is compared with a reference: `bertha bench
/// kernels` does that for each operation. `tensors`: the parameters, as LAMB has them.
std::vector<GainCase> make_gain_cases(const BenchModel& model, const BenchBatch& batch,
                                      std::span<const LambSegment> tensors);

/// Those of kernels that the benchmark alone has (gain_kernels.h), for f16 and bf16 on a CUDA
/// device: the gradient of the word table, and BatchNorm + ReLU at a layer of ResNet-50. They are
/// enqueued on `stream`, which outlives the cases.
std::vector<GainCase> make_gain_kernel_cases(const BenchModel& model, const BenchBatch& batch,
                                             int64_t images, Stream& stream);

/// Largest difference between what off and on leave in a case's results, over the allowed one: none
/// without additions or where a row has only one. Infinite where a result is all zeros.
double disagreement(OpBench& bench, const GainCase& made);

}  // namespace bertha

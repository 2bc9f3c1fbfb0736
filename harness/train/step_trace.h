#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/model/bert.h"
#include "harness/train/host_pieces.h"

namespace bertha {

/// What a tensor looks like; all but the first two over its finite elements, 0 where none is.
struct TensorFigures {
  std::string name;  // "layer.3.attention.sum", "gradient of layer.3.attention.qkv.weight"
  int64_t elements = 0;
  int64_t not_finite = 0;
  double largest = 0;  // max |x|
  double mean = 0;
  double rms = 0;  // root of the mean square
};

/// Of a tensor on the device: f32, bf16 or f16. Blocks: the host.
TensorFigures figures_of(std::string name, const View& values, HostPieces& pieces);

/// Everything that forward and backward of one rank's step depend on beside the weights.
struct TracedStep {
  struct MicroBatch {
    HostBatch batch;
    LossMean mean;
  };
  std::vector<MicroBatch> micro_batches = {};
  uint64_t dropout_seed = 0;
  uint64_t first_micro_step = 0;  // counter of its dropout
  float loss_scale = 1;
  std::vector<int> fp8_scale_exponents = {};  // see Bert::scale_exponents()
};

/// Runs forward and backward of the step and looks at what they leave in memory: the activations of
/// each micro-batch, then the gradients, summed over micro-batches, in the order in which they are
/// computed. Weights and optimizer stay as they are; `gradients`, io [table.elements or more],
/// those that the model is bound to, are overwritten.
/// Blocks    the host, for a copy of each tensor.
std::vector<TensorFigures> trace_step(const TracedStep& step, Bert& model, const ModelParts& parts,
                                      const ParamTable& table, const View& gradients);

}  // namespace bertha

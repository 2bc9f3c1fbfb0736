#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/bench/op_cases.h"

namespace bertha {

/// One technique at operations of the step, off and on, over the same tensors: what is fused in the
/// kernels, and the same composed of other operations.
struct GainCase {
  std::string row;  // as in the table of `bertha bench gains`
  OpCase off;
  OpCase on;
  std::vector<size_t> results = {};  // tensors that both leave alike, up to rounding
  int64_t calls_per_layer = 0;
  int64_t calls_per_step = 0;  // beside those
};

/// At the shapes of the model and the batch. Nothing is compared with a reference: `bertha bench
/// kernels` does that for each operation. `tensors`: the parameters, as LAMB has them.
std::vector<GainCase> make_gain_cases(const BenchModel& model, const BenchBatch& batch,
                                      std::span<const LambSegment> tensors);

/// MB that backward of BatchNorm + ReLU reads and writes at a layer of ResNet-50, each element
/// once: with the bits that forward keeps, and with y in their place.
struct BatchNormBytes {
  double with_bits_mb = 0;
  double with_y_mb = 0;
};
BatchNormBytes batch_norm_bytes(int64_t images, DType io);

}  // namespace bertha

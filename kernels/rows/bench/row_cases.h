#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/bench/op_case.h"
#include "kernels/rows/row_ops.h"

namespace bertha {

using RowCall = BenchCall<RowOps>;
using RowCase = BenchCase<RowOps>;

/// Softmax, log-softmax and LayerNorm over many widths.
struct RowSweep {
  std::vector<int64_t> widths;  // columns
  int64_t rows = 0;
  /// The number of rows is reduced if two sets of operands would need more than this.
  int64_t most_bytes = 0;
  DType io = DType::kF32;
};

/// Forward and backward of each; a shape is "49152x1024" or "49152x1024, log".
std::vector<RowCase> make_row_cases(const RowSweep& sweep);

/// PReLU with a slope per channel at the activations of an InsightFace network, and BatchNorm +
/// (Add +) ReLU with batch statistics at the activations of ResNet-50, each as NCHW and as NHWC;
/// forward and backward. A shape is "128x64x112x112 NCHW" or "128x256x56x56 NHWC, add": N, C, H, W
/// in this order for both layouts.
///
/// The batch repeats its leading images, about a million elements, which the reference computes.
std::vector<RowCase> make_channel_cases(int64_t images);

/// The widths that a table of rows has, odd ones among them.
std::vector<int64_t> default_widths();

}  // namespace bertha

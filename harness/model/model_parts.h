#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace bertha {

/// What the model computes with.
struct ModelParts {
  Device* device = nullptr;
  Stream* stream = nullptr;  // the one that ops is bound to
  Ops* ops = nullptr;
  DType io = DType::kF32;  // weights, activations and gradients
  bool fp8 = false;        // GEMMs as kFp8Passes says
  bool graphs = false;     // passes are recorded, see RecordedPasses
};

/// Numbers of rows: of the largest micro-batch that fits, for which every activation buffer is
/// allocated once (a capacity), or of the one in work.
struct BatchRows {
  int64_t tokens = 0;  // T; Bert rounds a capacity up to device.padded_rows()
  int64_t seqs = 0;    // B
  int64_t masked = 0;  // M; likewise
};

}  // namespace bertha

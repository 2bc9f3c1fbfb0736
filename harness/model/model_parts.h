#pragma once

#include "kernels/base/device.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// The device objects that the model uses.
struct ModelParts {
  Device* device = nullptr;
  Stream* stream = nullptr;  // the one that ops is bound to
  Ops* ops = nullptr;
  DType io = DType::kF32;  // weights, activations and gradients
  bool fp8 = false;        // the GEMMs of fp8_gemms() in fp8
  bool graphs = false;     // passes are recorded, see RecordedPasses
};

}  // namespace bertha

#pragma once

#include <string>

#include "harness/config/config.h"
#include "kernels/base/device.h"

namespace bertha {

/// The dtype of weights, activations and gradients on a device.
///
/// Errors    Error(kUsage) if the device does not support train.precision, if fp16 is set without a
///           loss scale, because its gradients would vanish, or if a GPU has no fp8 GEMM for the
///           model's widths.
DType choose_io(const Config& config, const Device& device);

/// The dtype that train.precision selects on a GPU or on the CPU.
DType planned_io(const TrainConfig& config, bool on_gpu);

/// Whether encoder GEMMs use fp8.
bool has_fp8_gemms(const TrainConfig& config);

/// "bf16", "bf16 with fp8 GEMMs".
std::string precision_text(DType io, const TrainConfig& config);

}  // namespace bertha

#pragma once

#include <string>

#include "harness/config/config.h"
#include "kernels/base/device.h"

namespace bertha {

/// The dtype of weights, activations and gradients on a device.
///
/// Errors    Error(kUsage) when the device lacks what train.precision names, when fp16 is asked for
///           without a loss scale: its gradients would vanish, or when a GPU has no fp8 GEMM for
///           the model's widths.
DType choose_io(const Config& config, const Device& device);

/// What train.precision would give: "auto" on a GPU or on the CPU.
DType planned_io(const TrainConfig& config, bool on_gpu);

/// Whether encoder GEMMs multiply fp8.
bool has_fp8_gemms(const TrainConfig& config);

/// "bf16", "bf16 with fp8 GEMMs".
std::string precision_text(DType io, const TrainConfig& config);

}  // namespace bertha

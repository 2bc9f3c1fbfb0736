#pragma once

#include "harness/config/config.h"
#include "kernels/device.h"

namespace bertha {

/// The dtype of weights, activations and gradients on a device.
///
/// Errors    Error(kUsage) when the device lacks what train.precision names, or when fp16 is asked
///           for without a loss scale: its gradients would vanish.
DType choose_io(const Config& config, const Device& device);

/// What train.precision would give: "auto" on a GPU or on the CPU.
DType planned_io(const TrainConfig& config, bool on_gpu);

}  // namespace bertha

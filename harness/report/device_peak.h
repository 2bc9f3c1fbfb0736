#pragma once

#include <string>

#include "kernels/base/dtype.h"

namespace bertha {

/// Dense FLOP/s of one device's GEMMs in `io`, by its data sheet: the peak for the model FLOPs
/// utilization (MFU). 0 = unknown: the CPU, f32, GPUs that the table lacks.
///
/// device    Device::description(), which begins with the name of the GPU.
double peak_flops(const std::string& device, DType io);

}  // namespace bertha

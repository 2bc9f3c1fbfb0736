#pragma once

#include <string>

#include "kernels/base/dtype.h"

namespace bertha {

/// FLOP/s of one device's GEMMs in `io`, dense, by its data sheet: what the model FLOPs
/// utilization (MFU) compares with. 0 = not known: the CPU, f32, GPUs that the table lacks.
///
/// device    Device::description(), which begins with the name of the GPU.
double peak_flops(const std::string& device, DType io);

}  // namespace bertha

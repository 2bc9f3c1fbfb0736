#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <functional>

#include "kernels/rows/c/bertha_kernels.h"

namespace bertha::python {

/// Calls a function of the C interface on a tensor's device, there on PyTorch's current stream. The
/// device is opened at its first use. Throws the message of a call that fails.
void run_where(const torch::stable::Tensor& tensor,
               const std::function<int32_t(BerthaKernels*, void* stream)>& function);

}  // namespace bertha::python

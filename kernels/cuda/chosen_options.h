#pragma once

#include "kernels/base/cuda/cuda_context.h"
#include "kernels/cuda/cuda_options.h"

namespace bertha {

/// The options of make_cuda_ops(), resolved for the kernels of the device.
struct ChosenOptions {
  explicit ChosenOptions(CudaContext&) {}  // as CudaContext::state() makes it
  CudaOptions options = {};
};

/// Needs     the context of make_cuda_ops().
inline const CudaOptions& chosen_options(const CudaContext& context) {
  return context.state<ChosenOptions>().options;
}

}  // namespace bertha

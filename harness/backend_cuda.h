#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/backend.h"

namespace bertha {

// GPU support of this build: CMake compiles backend_cuda.cpp or backend_without_cuda.cpp.

bool has_cuda_backend();

/// Bus ids of the GPUs that this process sees, by ordinal; none without a CUDA backend or a driver.
std::vector<std::string> visible_gpus();

/// Memory of the smallest of these GPUs; 0 without any.
int64_t smallest_gpu_bytes();

/// Several ranks communicate by NCCL or copies.
/// Error(kEnvironment) without a CUDA backend, or with several ranks and no NCCL; Error(kUsage)
/// if cuda.attention or cuda.gelu_gemms selects kernels that the GPU does not support.
std::unique_ptr<Backend> make_cuda_backend(int gpu_ordinal, const CudaConfig& config, World& world,
                                           Grouping grouping);

}  // namespace bertha

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/backend.h"

namespace bertha {

// What this build knows of GPUs: CMake compiles backend_cuda.cpp or backend_without_cuda.cpp.

bool has_cuda_backend();

/// Bus ids of the GPUs that this process sees, by ordinal; none without a CUDA backend or a driver.
std::vector<std::string> visible_gpus();

/// Memory of the smallest of them; 0 without any.
int64_t smallest_gpu_bytes();

/// NCCL or copies between the ranks, when there is more than one.
/// Error(kEnvironment) without a CUDA backend, or with several ranks and no NCCL; Error(kUsage)
/// where cuda.attention or cuda.gelu_gemms names kernels that the GPU does not run.
std::unique_ptr<Backend> make_cuda_backend(int gpu_ordinal, const CudaConfig& config, World& world,
                                           Grouping grouping);

}  // namespace bertha

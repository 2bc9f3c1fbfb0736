#pragma once

#include <string>
#include <vector>

#include "harness/backend.h"
#include "kernels/ops/attention.h"

namespace bertha {

// What this build knows of GPUs: CMake compiles backend_cuda.cpp or backend_without_cuda.cpp.

bool has_cuda_backend();

/// Bus ids of the GPUs that this process sees, by ordinal; none without a CUDA backend or a driver.
std::vector<std::string> visible_gpus();

/// NCCL or copies between the ranks, when there is more than one.
/// Error(kEnvironment) without a CUDA backend, or with several ranks and no NCCL; Error(kUsage)
/// where cuda.attention or cuda.gelu_gemms names kernels that the GPU does not run.
Backend make_cuda_backend(int gpu_ordinal, const CudaConfig& config, World& world,
                          Grouping grouping);

/// As describe_attention, on a backend with a GPU.
std::string describe_cuda_attention(const Backend& backend, const CudaConfig& config,
                                    const AttentionCall& call);

/// As can_record_passes, on a backend with a GPU.
bool can_record_cuda_passes(const Backend& backend, const CudaConfig& config,
                            const AttentionCall& call);

/// As describe_gelu_gemms, on a backend with a GPU.
std::string describe_cuda_gelu_gemms(const Backend& backend, const CudaConfig& config,
                                     const FeedForward& model);

/// As has_fp8, on a backend with a GPU.
bool has_cuda_fp8(const Backend& backend);

}  // namespace bertha

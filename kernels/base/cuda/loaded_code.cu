// What the driver has loaded of this program: code compiled for the GPU, or PTX that it translates.
// An empty kernel, compiled as the others are, tells.

#include "kernels/base/cuda/loaded_code.h"

namespace bertha {
namespace {

__global__ void probe_kernel() {}

}  // namespace

cudaError_t find_loaded_code(int& compiled_for) {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, probe_kernel);
  if (status != cudaSuccess) cudaGetLastError();  // clears the error
  compiled_for = attributes.ptxVersion;
  return status;
}

}  // namespace bertha

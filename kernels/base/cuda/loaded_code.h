#pragma once

#include <cuda_runtime_api.h>

namespace bertha {

/// The compute capability that the code for the current GPU was compiled for, times 10: 90 for
/// sm_90a, 80 for PTX of 8.0 that the driver has translated, whatever the GPU.
/// An error where this program has no code for the GPU.
cudaError_t find_loaded_code(int& compiled_for);

}  // namespace bertha

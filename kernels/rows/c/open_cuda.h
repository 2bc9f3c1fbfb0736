#pragma once

#include <memory>

#include "kernels/base/device.h"
#include "kernels/rows/row_ops.h"

namespace bertha {

// The part of the CUDA backend that the C interface uses: open_cuda.cpp, or open_without_cuda.cpp,
// which fails.

/// Row operations on a stream of the caller's.
struct StreamOps {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<RowOps> ops;
};

/// Error(kEnvironment) without the backend; otherwise as make_cuda_device.
std::unique_ptr<Device> open_cuda_device(int ordinal);
/// `stream` is a cudaStream_t; `device` outlives the operations.
StreamOps open_cuda_ops(Device& device, void* stream);

}  // namespace bertha

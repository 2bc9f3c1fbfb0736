#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/base/device.h"

namespace bertha {

/// The cudaStream_t of a Stream of a CUDA device. Error(kInternal) for another backend's.
cudaStream_t native(Stream& stream);
/// The cudaEvent_t of an Event of a CUDA device.
cudaEvent_t native(const Event& event);

/// A stream of a CUDA device whose blocks are placed before the blocks of its other streams: for
/// communication, which must not wait for the thousands of blocks of a GEMM.
std::unique_ptr<Stream> make_urgent_stream(Device& device);

/// Makes `ordinal` the calling thread's device.
void use_cuda_device(int ordinal);

}  // namespace bertha

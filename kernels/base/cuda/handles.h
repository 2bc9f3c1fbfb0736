#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "kernels/base/device.h"

namespace bertha {

/// The CUDA stream behind a Stream of a CUDA device. Error(kInternal) for another backend's.
cudaStream_t native(Stream& stream);
/// The CUDA event behind an Event of a CUDA device.
cudaEvent_t native(const Event& event);

/// A stream of a CUDA device whose blocks are placed before those of its other streams: for
/// communication, which must not queue behind the thousands of blocks of a GEMM.
std::unique_ptr<Stream> make_urgent_stream(Device& device);

/// Makes `ordinal` the calling thread's device.
void use_cuda_device(int ordinal);

}  // namespace bertha

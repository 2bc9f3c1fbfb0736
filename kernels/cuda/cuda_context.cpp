#include "kernels/cuda/cuda_context.h"

#include "kernels/cuda/cuda_check.h"

namespace bertha {

ScratchMemory::~ScratchMemory() {
  if (data_ != nullptr) cudaFreeAsync(data_, stream_);
}

void* ScratchMemory::take(int64_t bytes) {
  if (bytes <= bytes_) return data_;
  if (data_ != nullptr) BERTHA_CUDA_CHECK(cudaFreeAsync(data_, stream_));
  data_ = nullptr;
  bytes_ = 0;
  BERTHA_CUDA_CHECK(cudaMallocAsync(&data_, static_cast<size_t>(bytes), stream_));
  bytes_ = bytes;
  return data_;
}

CudaContext::CudaContext(CudaDevice& cuda_device, cudaStream_t cuda_stream,
                         const CudaOptions& cuda_options)
    : device(cuda_device),
      stream(cuda_stream),
      sm_count(cuda_device.sm_count()),
      options(cuda_options),
      scratch(cuda_stream),
      arrivals(cuda_device),
      exchange(cuda_device) {}

}  // namespace bertha

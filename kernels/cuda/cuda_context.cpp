#include "kernels/cuda/cuda_context.h"

#include "kernels/cuda/cuda_check.h"

namespace bertha {

ScratchMemory::~ScratchMemory() {
  for (void* block : blocks_) cudaFreeAsync(block, stream_);
}

void* ScratchMemory::take(int64_t bytes) {
  if (bytes <= bytes_) return blocks_.empty() ? nullptr : blocks_.back();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  BERTHA_CUDA_CHECK(cudaStreamIsCapturing(stream_, &status));
  BERTHA_CHECK(status == cudaStreamCaptureStatusNone, "an operation takes ", bytes,
               " bytes for the first time while it is recorded, want a run before");
  void* data = nullptr;
  BERTHA_CUDA_CHECK(cudaMallocAsync(&data, static_cast<size_t>(bytes), stream_));
  blocks_.push_back(data);
  bytes_ = bytes;
  return data;
}

ArrivalCounter::ArrivalCounter(cudaStream_t stream) : stream_(stream) {
  void* data = nullptr;
  BERTHA_CUDA_CHECK(cudaMallocAsync(&data, sizeof(uint32_t), stream));
  count_ = static_cast<uint32_t*>(data);
  BERTHA_CUDA_CHECK(cudaMemsetAsync(count_, 0, sizeof(uint32_t), stream));
}

ArrivalCounter::~ArrivalCounter() { cudaFreeAsync(count_, stream_); }

InterBlockExchange::InterBlockExchange(cudaStream_t stream, int sm_count) : stream_(stream) {
  const auto words = static_cast<size_t>(kExchangeWords) * static_cast<size_t>(sm_count);
  const size_t bytes = words * sizeof(uint64_t) + static_cast<size_t>(sm_count) * sizeof(uint32_t);
  void* data = nullptr;
  BERTHA_CUDA_CHECK(cudaMallocAsync(&data, bytes, stream));
  words_ = static_cast<uint64_t*>(data);
  readers_ = reinterpret_cast<uint32_t*>(words_ + words);
  BERTHA_CUDA_CHECK(cudaMemsetAsync(words_, 0, bytes, stream));
}

InterBlockExchange::~InterBlockExchange() { cudaFreeAsync(words_, stream_); }

CudaContext::CudaContext(CudaDevice& cuda_device, cudaStream_t cuda_stream,
                         const CudaOptions& cuda_options)
    : device(cuda_device),
      stream(cuda_stream),
      sm_count(cuda_device.sm_count()),
      options(cuda_options),
      scratch(cuda_stream),
      arrivals(cuda_stream),
      exchange(cuda_stream, sm_count) {}

}  // namespace bertha

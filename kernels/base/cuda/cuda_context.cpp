#include "kernels/base/cuda/cuda_context.h"

#include "kernels/base/cuda/cuda_check.h"

namespace bertha {

ScratchMemory::~ScratchMemory() {
  for (void* block : blocks_) cudaFreeAsync(block, stream_);
}

void* ScratchMemory::take(int64_t bytes) {
  if (bytes <= bytes_) return blocks_.empty() ? nullptr : blocks_.back();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  BERTHA_CUDA_CHECK(cudaStreamIsCapturing(stream_, &status));
  BERTHA_CHECK(status == cudaStreamCaptureStatusNone, "an operation allocates ", bytes,
               " bytes while it is recorded, want a run before the recording");
  void* data = nullptr;
  const int64_t with_room = bytes + bytes / 8;  // batches differ a little: few outgrow the first
  BERTHA_CUDA_CHECK(cudaMallocAsync(&data, static_cast<size_t>(with_room), stream_));
  blocks_.push_back(data);
  bytes_ = with_room;
  return data;
}

CudaContext::CudaContext(CudaDevice& cuda_device, cudaStream_t cuda_stream)
    : device(cuda_device),
      stream(cuda_stream),
      sm_count(cuda_device.sm_count()),
      kernels(cuda_device.kernels()),
      scratch(cuda_stream),
      arrivals(cuda_device) {}

void CudaContext::add_nothing(Accumulate accumulate, const View& sums) const {
  if (accumulate == Accumulate::kYes || !sums.has_data()) return;
  BERTHA_CUDA_CHECK(cudaMemsetAsync(sums.data, 0, static_cast<size_t>(sums.bytes()), stream));
}

void CudaContext::require_fp8(const char* operation) const {
  if (kernels == KernelSet::kSm90a) return;
  fail(ExitCode::kUsage, operation, " in fp8 needs the kernels of sm_90a (H100, H200), but ",
       device.description(), " does not run them; use bf16 there.");
}

}  // namespace bertha

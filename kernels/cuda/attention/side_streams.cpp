#include "kernels/cuda/attention/side_streams.h"

#include <algorithm>

#include "kernels/base/cuda/cuda_check.h"

namespace bertha {

SideStreams::SideStreams(const CudaContext& context) {
  use_cuda_device(context.device.ordinal());
  int priority = 0;
  BERTHA_CUDA_CHECK(cudaStreamGetPriority(context.stream, &priority));
  streams_[0] = context.stream;
  for (size_t i = 0; i < kStreams; ++i) {
    if (i > 0) {
      BERTHA_CUDA_CHECK(
          cudaStreamCreateWithPriority(&streams_[i], cudaStreamNonBlocking, priority));
    }
    BERTHA_CUDA_CHECK(cudaEventCreateWithFlags(&events_[i], cudaEventDisableTiming));
  }
}

SideStreams::~SideStreams() {
  for (size_t i = 0; i < kStreams; ++i) {
    cudaEventDestroy(events_[i]);
    if (i > 0) cudaStreamDestroy(streams_[i]);
  }
}

void SideStreams::fork(int items) {
  open_ = std::clamp(items, 1, kStreams);
  if (open_ == 1) return;
  BERTHA_CUDA_CHECK(cudaEventRecord(events_[0], streams_[0]));
  for (size_t i = 1; i < static_cast<size_t>(open_); ++i) {
    BERTHA_CUDA_CHECK(cudaStreamWaitEvent(streams_[i], events_[0], 0));
  }
}

void SideStreams::join() {
  for (size_t i = 1; i < static_cast<size_t>(open_); ++i) {
    BERTHA_CUDA_CHECK(cudaEventRecord(events_[i], streams_[i]));
    BERTHA_CUDA_CHECK(cudaStreamWaitEvent(streams_[0], events_[i], 0));
  }
  open_ = 1;
}

}  // namespace bertha

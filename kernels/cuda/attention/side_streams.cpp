#include "kernels/cuda/attention/side_streams.h"

#include <algorithm>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/handles.h"

namespace bertha {

AttentionLanes::AttentionLanes(int device_ordinal, cudaStream_t stream) {
  use_cuda_device(device_ordinal);
  int priority = 0;
  BERTHA_CUDA_CHECK(cudaStreamGetPriority(stream, &priority));
  streams_[0] = stream;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (lane > 0) {
      BERTHA_CUDA_CHECK(
          cudaStreamCreateWithPriority(&streams_[lane], cudaStreamNonBlocking, priority));
    }
    BERTHA_CUDA_CHECK(cudaEventCreateWithFlags(&events_[lane], cudaEventDisableTiming));
  }
}

AttentionLanes::~AttentionLanes() {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    cudaEventDestroy(events_[lane]);
    if (lane > 0) cudaStreamDestroy(streams_[lane]);
  }
}

void AttentionLanes::fork(int items) {
  open_ = std::clamp(items, 1, kLanes);
  if (open_ == 1) return;
  BERTHA_CUDA_CHECK(cudaEventRecord(events_[0], streams_[0]));
  for (size_t lane = 1; lane < static_cast<size_t>(open_); ++lane) {
    BERTHA_CUDA_CHECK(cudaStreamWaitEvent(streams_[lane], events_[0], 0));
  }
}

void AttentionLanes::join() {
  for (size_t lane = 1; lane < static_cast<size_t>(open_); ++lane) {
    BERTHA_CUDA_CHECK(cudaEventRecord(events_[lane], streams_[lane]));
    BERTHA_CUDA_CHECK(cudaStreamWaitEvent(streams_[0], events_[lane], 0));
  }
  open_ = 1;
}

}  // namespace bertha

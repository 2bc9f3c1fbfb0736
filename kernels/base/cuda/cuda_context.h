#pragma once

#include <memory>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "kernels/base/arguments.h"
#include "kernels/base/cuda/cuda_device.h"
#include "kernels/base/cuda/handles.h"

namespace bertha {

/// Scratch memory of an operation while it runs, reused by the next one on the same stream. Grows
/// without waiting, rarely after the first step. Outgrown buffers are kept until the end because
/// graphs have recorded their addresses.
class ScratchMemory {
 public:
  explicit ScratchMemory(cudaStream_t stream) : stream_(stream) {}
  ~ScratchMemory();
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  /// At least `bytes`, aligned to 256, with undefined contents. Valid until the next call.
  void* take(int64_t bytes);

 private:
  cudaStream_t stream_;
  std::vector<void*> blocks_;  // the last one is in use
  int64_t bytes_ = 0;          // size of the last buffer
};

/// A count of arrivals by which the last block of a kernel completes the work of the others. Zero
/// between kernels: the last arrival wraps it around (atomicInc).
class ArrivalCounter {
 public:
  explicit ArrivalCounter(CudaDevice& device) : count_(device.allocate(sizeof(uint32_t))) {}

  uint32_t* get() const { return static_cast<uint32_t*>(count_.data()); }

 private:
  Buffer count_;
};

/// What every operation of one Ops object shares.
struct CudaContext {
  CudaContext(CudaDevice& cuda_device, cudaStream_t cuda_stream);

  /// State of a family of operations between calls: State(context), created at the first call.
  template <class State>
  State& state() {
    std::shared_ptr<void>& kept = states_[typeid(State)];
    if (kept == nullptr) kept = std::make_shared<State>(*this);
    return *static_cast<State*>(kept.get());
  }
  /// The existing state.
  template <class State>
  const State& state() const {
    return *static_cast<const State*>(states_.at(typeid(State)).get());
  }

  /// sums (+)= 0, for an empty sum; does nothing if `sums` has no data.
  void add_nothing(Accumulate accumulate, const View& sums) const;

  /// Error(kUsage) if the kernels are portable ones, which do not support fp8.
  void require_fp8(const char* operation) const;

  CudaDevice& device;
  cudaStream_t stream;
  int sm_count;
  KernelSet kernels;
  ScratchMemory scratch;
  ArrivalCounter arrivals;

 private:
  std::unordered_map<std::type_index, std::shared_ptr<void>> states_;
};

}  // namespace bertha

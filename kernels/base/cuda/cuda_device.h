#pragma once

#include "kernels/base/cuda/kernel_set.h"
#include "kernels/base/device.h"

namespace bertha {

/// One GPU. Memory is taken with cudaMalloc and zeroed; copies are asynchronous in stream order
/// (from pageable host memory the host waits for the staging copy, as CUDA defines).
class CudaDevice final : public Device {
 public:
  /// Error(kEnvironment): no such device, or one that no kernels were compiled for.
  explicit CudaDevice(int ordinal, CudaKernels asked = CudaKernels::kAuto);

  std::string description() const override;
  int64_t padded_rows(int64_t rows) const override { return padded_rows_on_gpu(rows); }
  int64_t total_memory_bytes() const override;
  int64_t used_memory_bytes() const override;
  bool has_io(DType io) const override;
  Buffer allocate(int64_t bytes) override;
  Buffer allocate_pinned(int64_t bytes) override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;
  void copy(Stream& stream, void* destination, const void* source, int64_t bytes) override;
  std::unique_ptr<Graph> record(Stream& stream, const std::function<void()>& enqueue) override;
  void launch(Stream& stream, Graph& graph) override;
  void push_range(const char* name) override;
  void pop_range() override;
  void start_profiler() override;
  void stop_profiler() override;

  int ordinal() const { return ordinal_; }
  int sm_count() const { return sm_count_; }
  KernelSet kernels() const { return kernels_; }
  /// Whether the loaded code was compiled for sm_90a, also if portable kernels are selected.
  bool has_sm90a_code() const { return has_sm90a_code_; }
  /// Shared memory that a block may have.
  int64_t shared_bytes() const { return shared_bytes_; }

 private:
  int ordinal_;
  int sm_count_ = 0;
  KernelSet kernels_ = KernelSet::kPortable;
  bool has_sm90a_code_ = false;
  int64_t shared_bytes_ = 0;
  int64_t total_memory_bytes_ = 0;
  std::string name_;
};

/// `device` as a CudaDevice; Error(kInternal) for a device of another backend.
CudaDevice& as_cuda(Device& device);

}  // namespace bertha

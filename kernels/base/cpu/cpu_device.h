#pragma once

#include "kernels/base/cpu/cpu_devices.h"
#include "kernels/base/cpu/worker_pool.h"

namespace bertha {

/// Host memory and a pool of threads. Streams run work immediately, so events are always complete.
class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads) : pool_(threads) {}

  std::string description() const override;
  int64_t padded_rows(int64_t rows) const override { return padded_rows_on_cpu(rows); }
  bool has_io(DType io) const override { return io == DType::kF32; }
  int64_t total_memory_bytes() const override;
  int64_t used_memory_bytes() const override;
  Buffer allocate(int64_t bytes) override;
  Buffer allocate_pinned(int64_t bytes) override;
  std::unique_ptr<Stream> make_stream() override;
  std::unique_ptr<Event> make_event() override;
  void copy(Stream& stream, void* destination, const void* source, int64_t bytes) override;

  WorkerPool& pool() { return pool_; }

 private:
  WorkerPool pool_;
};

}  // namespace bertha

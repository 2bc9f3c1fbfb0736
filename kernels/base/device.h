#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kernels/base/divide.h"
#include "kernels/base/view.h"

namespace bertha {

/// Memory that one Device handed out; frees itself. Move-only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, int64_t bytes, std::function<void(void*)> release)
      : data_(data, std::move(release)), bytes_(bytes) {}

  void* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<void, std::function<void(void*)>> data_{nullptr, [](void*) {}};
  int64_t bytes_ = 0;
};

/// A point in a stream that other streams, or the host, can wait for.
class Event {
 public:
  virtual ~Event() = default;
  /// True when everything recorded before it has finished. Never blocks.
  virtual bool is_done() const = 0;
  /// Blocks: the host, until done.
  virtual void wait_on_host() const = 0;
  /// Milliseconds between two recorded events of the same device, both done.
  virtual double ms_since(const Event& earlier) const = 0;
};

/// An ordered queue of work. Streams of the CPU backend run all work immediately.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void record(Event& event) = 0;
  virtual void wait_for(const Event& event) = 0;
  /// Blocks: the host, until all work enqueued so far has finished.
  virtual void wait_on_host() = 0;
};

/// Work of a stream that was recorded, to be launched any number of times.
class Graph {
 public:
  virtual ~Graph() = default;
};

/// Device::padded_rows() of the backends, for plans without a device. On the CPU padding is small,
/// to save work, but not zero, so that it is tested. On a GPU few distinct shapes matter more than
/// a wave of 128-row tiles: multiples of 256 add 128 rows on average, 0.5 % of 24,576 tokens, but
/// 12 % of 1,024.
inline int64_t padded_rows_on_cpu(int64_t rows) { return round_up(rows, 8); }
inline int64_t padded_rows_on_gpu(int64_t rows) { return round_up(rows, rows <= 4096 ? 64 : 256); }

/// Allocation, copies and ordering on one device.
///
/// Errors    Error(kMemory) with the bytes requested and the bytes free; Error(kEnvironment).
/// Threads   one thread at a time, except allocate_pinned, which any thread may call.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string description() const = 0;  // "cpu, 2 threads"
  /// Rows that are computed for a batch of `rows` tokens or masked positions: rounded up to limit
  /// the number of GEMM plans and graphs. Rows beyond are padding. Non-decreasing in `rows`.
  virtual int64_t padded_rows(int64_t rows) const = 0;
  virtual int64_t total_memory_bytes() const = 0;
  /// Memory in use now: on a GPU by all programs on it, on the CPU by this process (resident);
  /// 0 = unknown.
  virtual int64_t used_memory_bytes() const = 0;
  /// Whether operations take io views (weights, activations, gradients) of this dtype.
  virtual bool has_io(DType io) const = 0;

  /// Zeroed memory of the device, aligned to 256 bytes.
  virtual Buffer allocate(int64_t bytes) = 0;
  /// Host memory that the device can copy from asynchronously, aligned to 256 bytes.
  virtual Buffer allocate_pinned(int64_t bytes) = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;

  /// Copies `bytes` in stream order; each pointer may be host (pinned) or device memory.
  virtual void copy(Stream& stream, void* destination, const void* source, int64_t bytes) = 0;

  /// Records the work that `enqueue` puts on the stream of operations instead of running it.
  /// Returns null without calling `enqueue` on a device without graphs.
  ///
  /// Needs     operations that have already run with the same shapes, because the first call
  ///           allocates and chooses kernels; no waits for other streams or of the host.
  virtual std::unique_ptr<Graph> record(Stream& stream, const std::function<void()>& enqueue) {
    static_cast<void>(stream);
    static_cast<void>(enqueue);
    return nullptr;
  }
  /// Enqueues the work recorded in a graph of this device. The graph must outlive the work.
  virtual void launch(Stream& stream, Graph& graph) {
    static_cast<void>(stream);
    static_cast<void>(graph);
  }

  // Marks for profilers of the device; without a profiler these do nothing.

  /// Names the work that the host enqueues until the matching pop_range(); ranges nest.
  virtual void push_range(const char* name) { static_cast<void>(name); }
  virtual void pop_range() {}
  /// A profiler that waits for it records from start_profiler() to stop_profiler().
  virtual void start_profiler() {}
  virtual void stop_profiler() {}
};

/// A range of the profiler that ends with its scope.
class ProfilerRange {
 public:
  ProfilerRange(Device& device, const std::string& name) : device_(device) {
    device_.push_range(name.c_str());
  }
  ~ProfilerRange() { device_.pop_range(); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  Device& device_;
};

}  // namespace bertha

#pragma once

#include <string>
#include <vector>

#include "kernels/base/device.h"

namespace bertha::testing {

/// A device without memory, whose streams and events others make.
class BareDevice : public Device {
 public:
  std::string description() const override { return "bare"; }
  int64_t padded_rows(int64_t rows) const override { return rows; }
  int64_t total_memory_bytes() const override { return 0; }
  int64_t used_memory_bytes() const override { return 0; }
  bool has_io(DType) const override { return true; }
  Buffer allocate(int64_t) override { return {}; }
  Buffer allocate_pinned(int64_t) override { return {}; }
  std::unique_ptr<Stream> make_stream() override { return nullptr; }
  void copy(Stream&, void*, const void*, int64_t) override {}
};

/// Another device's memory and streams, with what profilers are told noted down.
class RecordingDevice : public Device {
 public:
  explicit RecordingDevice(Device& device) : device_(device) {}

  std::string description() const override { return device_.description(); }
  int64_t padded_rows(int64_t rows) const override { return device_.padded_rows(rows); }
  int64_t total_memory_bytes() const override { return device_.total_memory_bytes(); }
  int64_t used_memory_bytes() const override { return device_.used_memory_bytes(); }
  bool has_io(DType io) const override { return device_.has_io(io); }
  Buffer allocate(int64_t bytes) override { return device_.allocate(bytes); }
  Buffer allocate_pinned(int64_t bytes) override { return device_.allocate_pinned(bytes); }
  std::unique_ptr<Stream> make_stream() override { return device_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return device_.make_event(); }
  void copy(Stream& stream, void* destination, const void* source, int64_t bytes) override {
    device_.copy(stream, destination, source, bytes);
  }
  void push_range(const char* name) override {
    path_.push_back(name);
    std::string joined;
    for (const std::string& part : path_) joined += (joined.empty() ? "" : " / ") + part;
    calls.push_back(joined);
  }
  void pop_range() override {
    BERTHA_CHECK(!path_.empty(), "a range is ended that was not begun");
    path_.pop_back();
  }
  void start_profiler() override { calls.push_back("start"); }
  void stop_profiler() override { calls.push_back("stop"); }

  size_t open_ranges() const { return path_.size(); }
  std::vector<std::string> calls;  // "step / forward / layer 0 forward", "start", "stop"

 private:
  Device& device_;
  std::vector<std::string> path_;
};

}  // namespace bertha::testing

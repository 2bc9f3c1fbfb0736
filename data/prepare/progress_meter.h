#pragma once

#include <chrono>
#include <mutex>

#include "data/prepare/prepare.h"

namespace bertha {

/// Collects what the worker threads have done and tells the caller now and then.
class ProgressMeter {
 public:
  ProgressMeter(const PrepareCallback& callback, int64_t num_parts) : callback_(callback) {
    state_.parts_total = num_parts;
  }

  void set_num_shards(int64_t num_shards) { state_.shards_total = num_shards; }
  void start_phase(PreparePhase phase, int64_t text_bytes_total) {
    update(Urgency::kNow, [&] {
      state_.phase = phase;
      state_.text_bytes_done = state_.shards_done = 0;
      state_.text_bytes_total = text_bytes_total;
      phase_start_ = std::chrono::steady_clock::now();
    });
  }
  void add_text_bytes(int64_t bytes) {
    update(Urgency::kWhenDue, [&] { state_.text_bytes_done += bytes; });
  }
  void finish_part(int64_t remaining_text_bytes) {
    update(Urgency::kNow, [&] {
      state_.text_bytes_done += remaining_text_bytes;
      ++state_.parts_done;
    });
  }
  /// A part that was there already: neither work done nor work to do.
  void reuse_part(int64_t text_bytes) {
    update(Urgency::kNow, [&] {
      state_.text_bytes_total -= text_bytes;
      ++state_.parts_done;
    });
  }
  void finish_shard() {
    update(Urgency::kNow, [&] { ++state_.shards_done; });
  }

 private:
  enum class Urgency : uint8_t { kNow, kWhenDue };
  template <class Change>
  void update(Urgency urgency, const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    tell(urgency);
  }
  void tell(Urgency urgency);  // with mutex_ held

  const PrepareCallback& callback_;
  std::mutex mutex_;
  PrepareProgress state_;
  std::chrono::steady_clock::time_point phase_start_;
  std::chrono::steady_clock::time_point last_told_;
};

}  // namespace bertha

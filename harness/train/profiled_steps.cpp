#include "harness/train/profiled_steps.h"

namespace bertha {

ProfiledSteps::ProfiledSteps(const std::string& steps, Device& device, Stream& stream)
    : range_(parse_step_range(steps)), device_(device), stream_(stream) {}

void ProfiledSteps::before_step(int64_t step) {
  if (!range_ || is_recording_ || step < range_->first || step > range_->last) return;
  stream_.wait_on_host();
  device_.start_profiler();
  is_recording_ = true;
}

void ProfiledSteps::after_step(int64_t step) {
  if (range_ && step >= range_->last) stop();
}

void ProfiledSteps::stop() {
  if (!is_recording_) return;
  stream_.wait_on_host();
  device_.stop_profiler();
  is_recording_ = false;
}

}  // namespace bertha

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/config/run_plan.h"
#include "kernels/base/device.h"

namespace bertha {

/// Makes a profiler record the steps of log.profile_steps. The stream is empty when the recording
/// begins and when it ends, so that it contains all work of these steps and no other.
///
/// Blocks    the host, before the first of the steps and after the last.
class ProfiledSteps {
 public:
  /// `steps` in the form that check_config accepts; "" = none.
  ProfiledSteps(const std::string& steps, Device& device, Stream& stream);

  /// Steps count from 1.
  void before_step(int64_t step);
  void after_step(int64_t step);
  /// Ends the recording, if one is active: a run may end before the last of the steps.
  void stop();

 private:
  std::optional<StepRange> range_;
  Device& device_;
  Stream& stream_;
  bool is_recording_ = false;
};

}  // namespace bertha

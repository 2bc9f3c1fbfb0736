#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/report/metrics.h"

namespace bertha {

/// What `bertha watch` shows of a run.
struct WatchView {
  std::string run_dir = {};
  std::string state = {};                // "running", "ended: target reached", ...
  std::vector<std::string> alarms = {};  // sentences about the curve
  bool goes_on = true;                   // has an end to wait for
  int64_t columns = 80;
  int64_t rows = 24;
  int64_t now_ms = 0;  // since the epoch
};

/// One frame, lines of at most view.columns; as many as view.rows, or some more where that is too
/// few for what has to be said. Ends in a newline.
std::string watch_frame(const Metrics& metrics, const WatchView& view);

}  // namespace bertha

#pragma once

#include <string>
#include <vector>

#include "kernels/base/log.h"

namespace bertha {

/// Collects what log_line() says while it lives.
class CapturedLog {
 public:
  struct Line {
    LogLevel level;
    std::string text;
  };

  CapturedLog() {
    set_log_sink([this](LogLevel level, const std::string& text) {
      lines.push_back({level, text});
    });
  }
  ~CapturedLog() { set_log_sink({}); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  /// What was said at this level or a more severe one.
  std::vector<std::string> texts(LogLevel least = LogLevel::kDebug) const {
    std::vector<std::string> found;
    for (const Line& line : lines) {
      if (line.level >= least) found.push_back(line.text);
    }
    return found;
  }
  std::vector<std::string> warnings() const { return texts(LogLevel::kWarning); }

  std::vector<Line> lines;
};

}  // namespace bertha

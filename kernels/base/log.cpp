#include "kernels/base/log.h"

#include <cstdio>
#include <mutex>
#include <utility>

namespace bertha {
namespace {

struct LogState {
  std::mutex mutex;
  LogSink sink;
  LogSink record;
};

LogState& log_state() {
  static LogState state;
  return state;
}

const char* tag(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug: ";
    case LogLevel::kInfo:
      return "";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kError:
      return "error: ";
  }
  return "";
}

}  // namespace

void log_line(LogLevel level, const std::string& text) {
  LogState& state = log_state();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (state.record) state.record(level, text);
  if (state.sink) {
    state.sink(level, text);
    return;
  }
  const std::string line = tag(level) + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void set_log_sink(LogSink sink) {
  LogState& state = log_state();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.sink = std::move(sink);
}

void set_log_record(LogSink record) {
  LogState& state = log_state();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.record = std::move(record);
}

void record_line(LogLevel level, const std::string& text) {
  LogState& state = log_state();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (state.record) state.record(level, text);
}

}  // namespace bertha

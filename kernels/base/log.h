#pragma once

#include <functional>
#include <string>

namespace bertha {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// One line per event, to standard error, tagged with the rank once it is known.
/// The one piece of process-wide state: sink and record, set at start by the program (or a test),
/// read everywhere.
///
/// Threads   any thread may log; one write per line.
void log_line(LogLevel level, const std::string& text);

using LogSink = std::function<void(LogLevel, const std::string&)>;

/// Sends lines elsewhere (the program: spdlog; tests: a list). An empty function restores stderr.
void set_log_sink(LogSink sink);

/// Sends every line to a record as well, debug lines included. An empty function ends it.
void set_log_record(LogSink record);
/// Sends a line to the record alone, because standard error shows it already.
void record_line(LogLevel level, const std::string& text);

}  // namespace bertha

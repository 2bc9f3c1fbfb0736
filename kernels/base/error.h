#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace bertha {

/// Why a run ended. The value is the exit code of the process and the same on every rank.
enum class ExitCode : int {
  kSuccess = 0,       // target reached, or plain success of a tool
  kInternal = 1,      // a bug of ours
  kUsage = 2,         // command line or configuration
  kTargetMissed = 3,  // finished without reaching the target
  kData = 4,          // a file is missing, wrong, or cannot be read or written
  kEnvironment = 5,   // MPI layout, driver, device, library
  kMemory = 6,        // host or device memory
  kNumeric = 7,       // NaN, too many skips or spikes, replicas that differ
  kCompliance = 8,    // log or submission breaks a rule
  kRequeue = 75,      // state saved after a signal or the time limit; start again to continue
  kHang = 124,        // a rank stopped answering
};

/// The only exception type. `what()` is a message for the user: what was found, what was wanted,
/// and what to do. `code` is the exit code that the top level returns.
struct Error : std::runtime_error {
  Error(ExitCode error_code, const std::string& what)
      : std::runtime_error(what), code(error_code) {}
  ExitCode code;
};

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

[[noreturn]] void throw_error(ExitCode code, const std::string& what);
[[noreturn]] void throw_failed_check(const char* condition, const std::string& what,
                                     const char* file, int line);

/// Ends the current work with a sentence for the user: fail(ExitCode::kData, path, ": empty file").
template <class... Parts>
[[noreturn]] void fail(ExitCode code, const Parts&... parts) {
  throw_error(code, concat(parts...));
}

}  // namespace bertha

/// Internal consistency: throws Error(kInternal) with file and line unless `condition` holds.
/// The parts after the condition name the field, the value found and the value wanted.
#define BERTHA_CHECK(condition, ...)                                                               \
  do {                                                                                             \
    if (!(condition))                                                                              \
      ::bertha::throw_failed_check(#condition, ::bertha::concat(__VA_ARGS__), __FILE__, __LINE__); \
  } while (false)

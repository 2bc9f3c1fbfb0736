#pragma once

#include <cstdint>
#include <string>

namespace bertha {

/// The call stack of the thread that constructs it, for other threads to read.
class ThreadStack {
 public:
  /// Reserves a real-time signal of this process for this class.
  ThreadStack();

  /// One line per call, innermost first: function, offset and file, or only file and offset if the
  /// name is not exported. A thread that does not react within a second is in the kernel, and the
  /// result is its process_text(). Interrupts the thread for some microseconds.
  std::string text() const;

 private:
  int id_;  // the kernel's thread id
};

/// The kernel's report on a process or thread of this machine: "state T (stopped by a signal),
/// system call 202, waits in do_signal_stop" and, if this user may read it, its kernel stack.
std::string process_text(int64_t id);

}  // namespace bertha

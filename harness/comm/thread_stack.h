#pragma once

#include <cstdint>
#include <string>

namespace bertha {

/// The call stack of the thread that makes it, for other threads to read.
class ThreadStack {
 public:
  /// From here on a real-time signal of this program belongs to this class.
  ThreadStack();

  /// A line per call, the innermost first: function, offset and file, or file and offset alone
  /// where a name is not exported. A thread that does not react within a second is in the kernel:
  /// then what process_text() says of it. Interrupts the thread for some microseconds.
  std::string text() const;

 private:
  int id_;  // of the kernel
};

/// What the kernel tells of a process or thread of this machine: "state T (stopped by a signal),
/// system call 202, waits in do_signal_stop" and, where this user may read it, its stack in the
/// kernel.
std::string process_text(int64_t id);

}  // namespace bertha

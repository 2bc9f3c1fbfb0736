#include "harness/train/signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

namespace bertha {
namespace {

// Written by a signal handler, read by other threads.
std::atomic<int> requests = 0;
std::atomic<bool> ended_by_parent = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

extern "C" void on_stop_signal(int signal_number, siginfo_t* info, void*) {
  const int earlier = requests++;
  if (signal_number == SIGTERM && info->si_pid == getppid()) ended_by_parent = true;
  if (earlier > 0) {
    std::signal(signal_number, SIG_DFL);
    std::raise(signal_number);
  }
}

}  // namespace

void watch_signals() {
  struct sigaction action {};
  action.sa_sigaction = on_stop_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal_number : std::array{SIGTERM, SIGUSR1, SIGINT}) {
    sigaction(signal_number, &action, nullptr);
    sigaddset(&watched, signal_number);
  }
  // Ctrl-C also ends a `tee` that reads the output, immediately; writing to it must not end the
  // process before it has saved.
  std::signal(SIGPIPE, SIG_IGN);
  // The parent process may have blocked them, and this process inherits the mask.
  pthread_sigmask(SIG_UNBLOCK, &watched, nullptr);
}

bool stop_was_requested() { return requests > 0; }

bool launcher_ends_job() { return ended_by_parent; }

}  // namespace bertha

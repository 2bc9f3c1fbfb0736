#include "harness/train/signals.h"

#include <unistd.h>

#include <array>
#include <csignal>

namespace bertha {
namespace {

volatile std::sig_atomic_t requests = 0;
volatile std::sig_atomic_t ended_by_parent = 0;

extern "C" void on_stop_signal(int signal_number, siginfo_t* info, void*) {
  requests = requests + 1;
  if (signal_number == SIGTERM && info->si_pid == getppid()) ended_by_parent = 1;
  if (requests > 1) {
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
  for (const int signal_number : std::array{SIGTERM, SIGUSR1, SIGINT}) {
    sigaction(signal_number, &action, nullptr);
  }
}

bool stop_was_requested() { return requests > 0; }

bool launcher_ends_job() { return ended_by_parent != 0; }

}  // namespace bertha

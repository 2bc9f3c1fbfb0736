#include "data/format/hdf5_guard.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <string_view>

#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int kLoop = SIGXCPU;  // sent by the timer
constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, kLoop};

// All that the signal handler can reach.
std::array<struct sigaction, kSignals.size()> former_actions{};
std::atomic<pid_t> thread_inside = 0;  // of the library
std::atomic<const char*> path_inside = nullptr;

void write_text(std::string_view text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(static_cast<int>(ExitCode::kData));
}

/// In a signal handler: nothing is allocated.
[[noreturn]] void end_program() {
  write_text("bertha: error: ");
  for (const char letter : std::string_view(path_inside)) {
    const bool may_steer_a_terminal = static_cast<unsigned char>(letter) < ' ' || letter == 127;
    write_text(may_steer_a_terminal ? std::string_view("?") : std::string_view(&letter, 1));
  }
  write_text(
      ": it crashes the HDF5 library or keeps it in a loop; the file is damaged, make or copy it "
      "again\n");
  _exit(static_cast<int>(ExitCode::kData));
}

extern "C" void on_library_signal(int number, siginfo_t* info, void* /*context*/) {
  const bool is_timer = number == kLoop && info->si_code == SI_TIMER;
  const bool is_limit_of_process = number == kLoop && !is_timer;
  if (thread_inside == gettid() && !is_limit_of_process) end_program();
  if (is_timer) return;  // the call has just ended
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == number) sigaction(number, &former_actions[i], nullptr);
  }
  raise(number);  // taken when this returns
}

void take_signals() {
  static const bool taken = [] {
    struct sigaction action {};
    action.sa_sigaction = on_library_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (size_t i = 0; i < kSignals.size(); ++i) {
      sigaction(kSignals[i], &action, &former_actions[i]);
    }
    return true;
  }();
  static_cast<void>(taken);
}

/// Of the processor: a sound file is read in a small part of it, unless it is packed a
/// thousandfold; a loop may fill memory meanwhile.
itimerspec most_time(int64_t file_bytes) {
  constexpr int64_t kSecond_ns = 1'000'000'000;
  const int64_t time_ns = kSecond_ns / 5 + 2000 * file_bytes;
  itimerspec limit{};
  limit.it_value.tv_sec = time_ns / kSecond_ns;
  limit.it_value.tv_nsec = time_ns % kSecond_ns;
  return limit;
}

}  // namespace

Hdf5Guard::Hdf5Guard(const std::string& path, int64_t file_bytes) {
  take_signals();
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event._sigev_un._tid = gettid();  // glibc has no other name for it
  event.sigev_signo = kLoop;
  // Without a timer, where the system has none left, sound files are read as ever.
  has_timer_ = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) == 0;
  const itimerspec limit = most_time(file_bytes);
  if (has_timer_) timer_settime(timer_, 0, &limit, nullptr);
  path_inside = path.c_str();
  thread_inside = gettid();
}

Hdf5Guard::~Hdf5Guard() {
  thread_inside = 0;
  if (has_timer_) timer_delete(timer_);
}

bool Hdf5Guard::is_alive() { return thread_inside == gettid(); }

}  // namespace bertha

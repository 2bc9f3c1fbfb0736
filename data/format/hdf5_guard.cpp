#include "data/format/hdf5_guard.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <string_view>

#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int kLoop = SIGXCPU;  // sent by the timer
constexpr int kLate = SIGALRM;  // the program should have ended
constexpr int kMostTicks = 25;  // of the timer, some milliseconds each
constexpr unsigned kMostSecondsToEnd = 15;
constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, kLoop, kLate};

// All that a signal handler can reach.
std::array<struct sigaction, kSignals.size()> former_actions{};
std::atomic<pid_t> thread_inside = 0;  // of the library
std::atomic<const char*> path_inside = nullptr;
std::atomic<sigjmp_buf*> entry_inside = nullptr;
std::atomic<int> num_ticks = 0;          // of the timer, for which the thread was at work elsewhere
std::array<char, 4608> sentence{};       // a path has at most 4096 bytes
std::atomic<size_t> sentence_bytes = 0;  // 0: the library has not failed

// In a signal handler: nothing is allocated.
void write_sentence() {
  size_t size = 0;
  for (const std::string_view part :
       {std::string_view(path_inside),
        std::string_view(": it crashes the HDF5 library or keeps it in a loop; the file is "
                         "damaged, make or copy it again")}) {
    size += part.copy(sentence.data() + size, sentence.size() - size);
  }
  sentence_bytes = size;
}

[[noreturn]] void end_program() {
  for (size_t i = 0; i < sentence_bytes; ++i) {
    const char letter = sentence[i];
    if ((letter >= 0 && letter < ' ') || letter == 127) sentence[i] = '?';  // may steer a terminal
  }
  for (const std::string_view part :
       {std::string_view("bertha: error: "), std::string_view(sentence.data(), sentence_bytes),
        std::string_view("\n")}) {
    if (write(STDERR_FILENO, part.data(), part.size()) < 0) break;
  }
  _exit(static_cast<int>(ExitCode::kData));
}

/// Whether the signal met the library's own code, and not the memory allocator, which would keep
/// its lock.
bool met_library(const void* context) {
  const mcontext_t& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const auto place = static_cast<uintptr_t>(machine.gregs[REG_RIP]);
#else
  const auto place = static_cast<uintptr_t>(machine.pc);
#endif
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(place), &info) != 0 &&
         std::strstr(info.dli_fname, "libhdf5") != nullptr;
}

extern "C" void on_library_signal(int number, siginfo_t* info, void* context) {
  const bool is_timer = number == kLoop && info->si_code == SI_TIMER;
  const bool is_crash = number != kLoop && number != kLate;
  if (sentence_bytes > 0 && !is_timer) end_program();
  if (thread_inside == gettid() && sentence_bytes == 0 && (is_timer || is_crash)) {
    if (is_timer && !met_library(context) && ++num_ticks < kMostTicks) return;
    write_sentence();
    // It is the allocator that aborts, when the memory is damaged, and keeps its lock.
    if (entry_inside == nullptr || number == SIGABRT || num_ticks == kMostTicks) end_program();
    alarm(kMostSecondsToEnd);
    siglongjmp(*entry_inside, 1);
  }
  if (is_timer) return;  // the library has come to an end at this moment, or is left
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

/// Of the processor: for a sound file a small part of it will do, unless it is packed a
/// thousandfold. A loop may allocate meanwhile.
itimerspec most_time(int64_t file_bytes) {
  constexpr int64_t kBase_ns = 100'000'000;
  constexpr int64_t kPerByte_ns = 2000;
  constexpr int64_t kSecond_ns = 1'000'000'000;
  const int64_t time_ns = kBase_ns + kPerByte_ns * file_bytes;
  itimerspec limit{};
  limit.it_value.tv_sec = time_ns / kSecond_ns;
  limit.it_value.tv_nsec = time_ns % kSecond_ns;
  limit.it_interval.tv_nsec = 1'000'000;
  return limit;
}

}  // namespace

Hdf5Guard::Hdf5Guard(const std::string& path, int64_t file_bytes, sigjmp_buf* entry) {
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
  entry_inside = entry;
  num_ticks = 0;
  thread_inside = gettid();
}

Hdf5Guard::~Hdf5Guard() {
  thread_inside = 0;
  if (has_timer_) timer_delete(timer_);
}

bool Hdf5Guard::is_broken() { return sentence_bytes > 0; }

void Hdf5Guard::fail_if_broken() {
  if (is_broken()) fail(ExitCode::kData, std::string_view(sentence.data(), sentence_bytes));
}

}  // namespace bertha

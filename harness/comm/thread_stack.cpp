#include "harness/comm/thread_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <thread>

#include "kernels/base/error.h"

namespace bertha {
namespace {

constexpr int kMaxFrames = 64;
constexpr int kOwnFrames = 2;  // the handler, and the return from the signal
constexpr std::chrono::milliseconds kMaxWait{1000};
constexpr std::chrono::milliseconds kPolling{5};

// A signal handler can use only globals.
std::array<void*, kMaxFrames> frames{};
std::atomic<int> num_frames = 0;

int stack_signal() { return SIGRTMIN + 6; }

extern "C" void on_stack_signal(int) { num_frames = backtrace(frames.data(), kMaxFrames); }

std::string function_name(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  return name == nullptr ? symbol : name.get();
}

std::string frame_text(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return concat(address);
  const std::string file = std::filesystem::path(info.dli_fname).filename().string();
  const bool is_named = info.dli_sname != nullptr;
  const auto offset =
      static_cast<char*>(address) - static_cast<char*>(is_named ? info.dli_saddr : info.dli_fbase);
  std::ostringstream text;
  text << (is_named ? function_name(info.dli_sname) : file) << "+0x" << std::hex << offset;
  if (is_named) text << " (" << file << ")";
  return text.str();
}

/// The first line of a file in /proc; "" if it may not be read.
std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream in(path);
  std::getline(in, line);
  return line;
}

std::string state_text(char state) {
  static const std::map<char, std::string> kTexts{
      {'R', "running"},
      {'S', "asleep"},
      {'D', "waits for a disk, a file server or a device and cannot be interrupted"},
      {'T', "stopped by a signal"},
      {'t', "stopped by a debugger"},
      {'Z', "has ended"}};
  const auto known = kTexts.find(state);
  return known == kTexts.end() ? "unknown" : known->second;
}

}  // namespace

ThreadStack::ThreadStack() : id_(gettid()) {
  std::array<void*, 1> first{};
  backtrace(first.data(), 1);  // loads a library, which a signal handler must not
  struct sigaction action {};
  action.sa_handler = on_stack_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(stack_signal(), &action, nullptr);
}

std::string ThreadStack::text() const {
  num_frames = 0;
  tgkill(getpid(), id_, stack_signal());
  for (auto waited = kPolling; num_frames == 0 && waited < kMaxWait; waited += kPolling) {
    std::this_thread::sleep_for(kPolling);
  }
  if (num_frames == 0) return "it does not react to signals; " + process_text(id_);
  std::string text;
  for (int i = kOwnFrames; i < num_frames; ++i) {
    text += concat(i > kOwnFrames ? "\n" : "", "  ", frame_text(frames[static_cast<size_t>(i)]));
  }
  return text;
}

std::string process_text(int64_t id) {
  const std::string folder = concat("/proc/", id, "/");
  const std::string stat = first_line(folder + "stat");
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return "the kernel has no information about it";
  const char state = stat[name_end + 2];
  std::string text = concat("state ", state, " (", state_text(state), ")");
  const std::string call = first_line(folder + "syscall");
  if (!call.empty() && call != "running") {
    text += ", system call " + call.substr(0, call.find(' '));
  }
  const std::string place = first_line(folder + "wchan");
  if (place.size() > 1) text += ", waits in " + place;
  std::ifstream kernel_stack(folder + "stack");
  for (std::string line; std::getline(kernel_stack, line);) text += "\n  " + line;
  return text;
}

}  // namespace bertha

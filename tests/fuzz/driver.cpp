// Feeds mutated files to the parsers, without a fuzzing library. Each execution is a pure function
// of target, --seed and its number. They run in a child process, which is started anew behind an
// input that ends it, hangs it or makes it take too much memory; that input is saved.

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <new>

#include "kernels/base/log.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutator.h"

// Freed memory that ASan holds back would count as taken. The HDF5 library asks for any size that a
// file states, and bears with none.
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=8:allocator_release_to_os_interval_ms=500:allocator_may_return_null=1";
}

namespace bertha::fuzz {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Input = std::function<std::string(int64_t execution)>;

// Of one execution; other programs may have the processor meanwhile.
constexpr double kMaxCpuSeconds = 5;
constexpr auto kMaxTime = std::chrono::seconds(60);
constexpr int64_t kMaxExtraBytes = int64_t{256} << 20;
constexpr int64_t kMaxFindings = 20;                   // of one target
constexpr const char* kRefusedAtExit = "exit code 4";  // by data/format/hdf5_library.h

struct Options {
  std::vector<std::string> targets;  // none: all
  int64_t executions = 10'000;       // of each target
  double seconds = 0;                // of each target; 0: no limit
  uint64_t seed = 0;
  std::string findings = "findings";
  std::string replay;  // a folder with a folder of inputs for each target
  std::string seeds;   // where to write the seeds instead
  bool list = false;
};

int64_t peak_bytes() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return int64_t{1024} * used.ru_maxrss;
}

/// In the child: the executions [next, end), with the one in hand in `next`.
[[noreturn]] void run_child(const FuzzTarget& target, std::atomic<int64_t>& next, int64_t end,
                            Clock::time_point deadline, const Input& input) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const int64_t before_bytes = peak_bytes();
  for (; next < end && Clock::now() < deadline; ++next) {
    const std::string bytes = input(next);
    execute(target, bytes);
    const int64_t taken_bytes = peak_bytes() - before_bytes;
    if (taken_bytes <= 4 * std::ssize(bytes) + kMaxExtraBytes) continue;
    std::fprintf(stderr, "finding in %s: %lld bytes of memory for a file of %zu\n", target.name,
                 static_cast<long long>(taken_bytes), bytes.size());
    std::abort();
  }
  _exit(0);
}

double cpu_seconds(pid_t process) {
  clockid_t clock{};
  timespec used{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

/// How the child ended, "" when by itself; one that takes too long for one execution is killed.
std::string wait_for(pid_t child, const std::atomic<int64_t>& next) {
  int64_t seen = -1;
  Clock::time_point since;
  double since_cpu_seconds = 0;
  for (int status = 0;; usleep(10'000)) {
    if (waitpid(child, &status, WNOHANG) == child) {
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
      return WIFSIGNALED(status) ? concat("signal ", WTERMSIG(status))
                                 : concat("exit code ", WEXITSTATUS(status));
    }
    if (next != seen) {
      seen = next;
      since = Clock::now();
      since_cpu_seconds = cpu_seconds(child);
    } else if (Clock::now() - since > kMaxTime ||
               cpu_seconds(child) - since_cpu_seconds > kMaxCpuSeconds) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return "a hang";
    }
  }
}

/// Returns the number of findings.
int64_t run_target(const FuzzTarget& target, int64_t executions, const Options& options,
                   const Input& input) {
  void* shared = mmap(nullptr, sizeof(std::atomic<int64_t>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  BERTHA_CHECK(shared != MAP_FAILED, "no shared memory");
  auto& next = *new (shared) std::atomic<int64_t>(0);
  const Clock::time_point start = Clock::now();
  const auto limit = std::chrono::duration<double>(options.seconds > 0 ? options.seconds : 1e6);
  const auto deadline = start + std::chrono::duration_cast<Clock::duration>(limit);
  int64_t findings = 0;
  while (next < executions && Clock::now() < deadline && findings < kMaxFindings) {
    const pid_t child = fork();
    BERTHA_CHECK(child >= 0, "no process can be started");
    if (child == 0) run_child(target, next, executions, deadline, input);
    const std::string ending = wait_for(child, next);
    if (ending.empty()) break;
    if (ending == kRefusedAtExit) {
      ++next;
      continue;
    }
    fs::create_directories(options.findings);
    const std::string path = concat(options.findings, "/", target.name, "-", next);
    std::ofstream(path, std::ios::binary) << input(next);
    std::printf("%s: %s, execution %lld, saved as %s\n", target.name, ending.c_str(),
                static_cast<long long>(next), path.c_str());
    ++findings;
    ++next;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%-12s %10lld executions in %6.1f s, %lld findings\n", target.name,
              static_cast<long long>(next), seconds, static_cast<long long>(findings));
  std::fflush(stdout);
  munmap(shared, sizeof(std::atomic<int64_t>));
  return findings;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> paths;
  if (!fs::is_directory(folder)) return paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path().string());
  std::ranges::sort(paths);
  return paths;
}

int64_t replay(const FuzzTarget& target, const Options& options) {
  const std::vector<std::string> paths = files_in(concat(options.replay, "/", target.name));
  if (paths.empty()) return 0;
  return run_target(target, std::ssize(paths), options, [&](int64_t execution) {
    return bytes_of(paths[static_cast<size_t>(execution)]);
  });
}

void write_seeds(const FuzzTarget& target, const std::string& folder) {
  const std::string path = concat(folder, "/", target.name);
  fs::create_directories(path);
  int64_t number = 0;
  for (const std::string& seed : target.seeds()) {
    std::ofstream(concat(path, "/seed_", number++), std::ios::binary) << seed;
  }
}

int64_t fuzz(const FuzzTarget& target, const Options& options) {
  const std::vector<std::string> seeds = target.seeds();
  for (const std::string& seed : seeds) execute(target, seed);
  return run_target(target, options.executions, options, [&](int64_t execution) {
    return mutated(target, seeds, options.seed, execution);
  });
}

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> const char* {
      if (++i == argc) fail(ExitCode::kUsage, word, " wants a value");
      return argv[i];
    };
    if (word == "--executions") {
      options.executions = std::atoll(value());
    } else if (word == "--seconds") {
      options.seconds = std::atof(value());
    } else if (word == "--seed") {
      options.seed = std::strtoull(value(), nullptr, 10);
    } else if (word == "--findings") {
      options.findings = value();
    } else if (word == "--replay") {
      options.replay = value();
    } else if (word == "--write-seeds") {
      options.seeds = value();
    } else if (word == "--list") {
      options.list = true;
    } else if (find_target(word) != nullptr) {
      options.targets.push_back(word);
    } else {
      fail(
          ExitCode::kUsage, word, " is no target and no option; want [TARGET ...] [--executions N]",
          " [--seconds S] [--seed N] [--findings DIR], or --replay DIR, --write-seeds DIR, --list");
    }
  }
  return options;
}

int run(const Options& options) {
  int64_t findings = 0;
  for (const FuzzTarget& target : all_targets()) {
    const auto& wanted = options.targets;
    if (!wanted.empty() && std::ranges::find(wanted, target.name) == wanted.end()) continue;
    if (options.list) {
      std::printf("%s\n", target.name);
    } else if (!options.seeds.empty()) {
      write_seeds(target, options.seeds);
    } else {
      findings += options.replay.empty() ? fuzz(target, options) : replay(target, options);
    }
  }
  return findings == 0 ? 0 : 1;
}

}  // namespace
}  // namespace bertha::fuzz

int main(int argc, char** argv) {
  bertha::set_log_sink([](bertha::LogLevel, const std::string&) {});
  bertha::fuzz::scratch_path("");  // made here, so that it ends with this process
  try {
    return bertha::fuzz::run(bertha::fuzz::options_of(argc, argv));
  } catch (const bertha::Error& error) {
    std::fprintf(stderr, "bertha_fuzz: %s\n", error.what());
    return static_cast<int>(error.code);
  }
}

#include "data/format/shard_probe.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>
#include <thread>

#include "data/format/shard_reader.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

[[noreturn]] void read_and_exit(const std::string& path) {
  // The guard of the library takes less, but the thread sanitizer holds its signal back in there.
  std::error_code ignored;
  const auto mib = static_cast<rlim_t>(std::filesystem::file_size(path, ignored) >> 20);
  const rlimit seconds{10 + 8 * mib, 10 + 8 * mib};
  setrlimit(RLIMIT_CPU, &seconds);
  // What the guard writes where it ends this process is the caller's to say.
  if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(0);
  try {
    read_shard_reporting(path, 0, {}, [](const Violation&) {});
  } catch (...) {  // the caller reads the shard again and tells
  }
  _exit(0);
}

std::string ending(int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return "it crashes the HDF5 library or keeps it in a loop; the file is damaged, make or copy it "
         "again";
}

}  // namespace

std::vector<std::string> probe_shards(const std::vector<std::string>& paths,
                                      int64_t num_processes) {
  std::vector<std::string> endings(paths.size());
  std::map<pid_t, size_t> running;
  const auto wait_for_one = [&] {
    int status = 0;
    const auto [child, shard] = *running.begin();
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    endings[shard] = ending(status);
    running.erase(child);
  };
  const auto wanted = static_cast<size_t>(
      num_processes > 0 ? num_processes
                        : std::max<int64_t>(1, std::thread::hardware_concurrency()));
  for (size_t shard = 0; shard < paths.size(); ++shard) {
    if (running.size() == wanted) wait_for_one();
    const pid_t child = fork();
    if (child == 0) read_and_exit(paths[shard]);
    if (child < 0) {
      const int reason = errno;
      while (!running.empty()) wait_for_one();
      fail(ExitCode::kEnvironment, "cannot start a process to read ", paths[shard], ": ",
           std::strerror(reason));
    }
    running[child] = shard;
  }
  while (!running.empty()) wait_for_one();
  return endings;
}

}  // namespace bertha

// A library to preload into a program: it then finds 64 cores, however many the machine has.

#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/failing_calls.h"

namespace {

constexpr int kCores = 64;

}  // namespace

extern "C" {

int get_nprocs() noexcept { return kCores; }
int get_nprocs_conf() noexcept { return kCores; }

long sysconf(int name) noexcept {
  if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF) return kCores;
  return real("sysconf", &sysconf)(name);
}

int sched_getaffinity(pid_t, size_t bytes, cpu_set_t* cores) noexcept {
  std::memset(cores, 0, bytes);
  for (size_t core = 0; core < kCores; ++core) CPU_SET_S(core, bytes, cores);
  return 0;
}
}

// A library to preload into a program: lets one of its calls fail, or ends the process there.
//
//   FAIL_WHAT    files    calls that create, write, force to disk, rename or remove files below
//                         FAIL_BELOW
//                memory   allocations of FAIL_BYTES and more, which then find no memory
//                threads  starts of threads, which then find no resources
//                The last two by the program itself and by the C++ library for it.
//                mpi      calls of MPI (failing_mpi.cpp), which then return an error
//                nccl     calls of NCCL (failing_nccl.cpp), likewise, where it is built in
//                cuda     calls of CUDA and cuBLASLt by bertha_failing_cuda (failing_cuda.cpp)
//                signals  none: MPI takes SIGUSR1 when it starts, as libraries below it may
//   FAIL_AT      the call that fails, counted from 1; 0 = none, the calls are counted only
//   FAIL_HOW     an errno (5 = EIO, 28 = ENOSPC), of cuda an error of CUDA (2 = memory, 214 = ECC,
//                719 = launch failure); kill: signal 9 instead of the call; or hang: the thread
//                stands still in it for ever
//   FAIL_RANK    of MPI whose calls count; without it those of every process
//   FAIL_OUTPUT  file that gets a line for each call: its number, its name, its path

#include "tests/support/failing_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

/// Plain data and no allocation: malloc itself ends up here.
class Calls {
 public:
  /// Whether this call of a kind has to fail, with errno set. `path` for the report.
  bool must_fail(const char* kind, const char* name, const char* path) {
    read_environment();
    if (!counts_ || std::strcmp(kind, what_) != 0) return false;
    const long number = __atomic_add_fetch(&number_, 1, __ATOMIC_RELAXED);
    report(number, name, path);
    if (number != at_) return false;
    while (hangs_) pause();
    if (reason_ == 0) kill(getpid(), SIGKILL);
    errno = reason_;
    return true;
  }

  bool is_below(const char* path) {
    read_environment();
    return counts_ && *below_ != 0 && std::strncmp(path, below_, std::strlen(below_)) == 0;
  }
  size_t least_bytes() {
    read_environment();
    return counts_ ? least_bytes_ : 0;
  }

 private:
  void read_environment() {
    if (is_read_) return;
    is_read_ = true;
    const char* rank = std::getenv("FAIL_RANK");
    const char* own = std::getenv("OMPI_COMM_WORLD_RANK");
    counts_ = std::getenv("FAIL_WHAT") != nullptr &&
              (rank == nullptr || (own != nullptr && std::strcmp(rank, own) == 0));
    if (!counts_) return;
    keep(what_, "FAIL_WHAT");
    keep(below_, "FAIL_BELOW");
    keep(output_, "FAIL_OUTPUT");
    if (const char* at = std::getenv("FAIL_AT")) at_ = std::atol(at);
    if (const char* how = std::getenv("FAIL_HOW")) {
      reason_ = std::atoi(how);
      hangs_ = std::strcmp(how, "hang") == 0;
    }
    if (const char* bytes = std::getenv("FAIL_BYTES")) {
      least_bytes_ = static_cast<size_t>(std::atoll(bytes));
    }
  }
  template <size_t size>
  static void keep(char (&to)[size], const char* name) {
    if (const char* value = std::getenv(name)) std::strncpy(to, value, size - 1);
  }
  void report(long number, const char* name, const char* path) const {
    if (*output_ == 0) return;
    char line[700];
    const int bytes = std::snprintf(line, sizeof line, "%ld %s %s\n", number, name, path);
    static auto* const open_file = real("open", &::open);
    static auto* const write_file = real("write", &::write);
    const int file = open_file(output_, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    (void)!write_file(file, line, static_cast<size_t>(bytes));
    static auto* const close_file = real("close", &::close);
    close_file(file);
  }

  bool is_read_ = false;
  bool counts_ = false;
  char what_[16] = {};
  char below_[400] = {};
  char output_[400] = {};
  long at_ = 0;
  int reason_ = 0;  // 0 = kill
  bool hangs_ = false;
  size_t least_bytes_ = 0;
  long number_ = 0;
};

Calls calls;  // zero until its first use: other libraries call before this one is initialized

constexpr int kMaxFiles = 4096;
bool is_watched[kMaxFiles];  // by descriptor: opened for writing below the folder

void watch(int file, bool is_below) {
  if (file >= 0 && file < kMaxFiles) is_watched[file] = is_below;
}

bool fails(const char* name, const char* path) {
  return calls.is_below(path) && calls.must_fail("files", name, path);
}
bool fails(const char* name, int file) {
  if (file < 0 || file >= kMaxFiles || !is_watched[file]) return false;
  char path[400] = {};
  char link[40];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  (void)!readlink(link, path, sizeof path - 1);
  return calls.must_fail("files", name, path);
}
bool is_written(int flags) { return (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0; }

template <class Open>
int open_watched(const char* name, const char* path, int flags, Open&& open) {
  const bool is_below = is_written(flags) && calls.is_below(path);
  if (is_below && calls.must_fail("files", name, path)) return -1;
  const int file = open();
  watch(file, is_below);
  return file;
}

template <class Open>
std::FILE* fopen_watched(const char* path, const char* mode, Open&& open) {
  const bool is_below = std::strpbrk(mode, "wa+") != nullptr && calls.is_below(path);
  if (is_below && calls.must_fail("files", "fopen", path)) return nullptr;
  std::FILE* const file = open();
  if (file != nullptr) watch(fileno(file), is_below);
  return file;
}

/// Whether the program itself calls, if through the C++ library, and no other library.
bool is_of_program(const void* caller) {
  Dl_info info;
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  return std::strstr(info.dli_fname, ".so") == nullptr ||
         std::strstr(info.dli_fname, "libstdc++") != nullptr;
}

bool fails_allocation(size_t bytes, const void* caller) {
  const size_t least = calls.least_bytes();
  if (least == 0 || bytes < least || !is_of_program(caller)) return false;
  char size[32];
  std::snprintf(size, sizeof size, "%zu", bytes);
  return calls.must_fail("memory", "malloc", size);
}

mode_t mode_of(va_list rest, int flags) {
  return (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
}

}  // namespace

bool must_fail(const char* kind, const char* name) { return calls.must_fail(kind, name, ""); }

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(rest, flags);
  va_end(rest);
  auto* const next = real("open", &open);
  return open_watched("open", path, flags, [&] { return next(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(rest, flags);
  va_end(rest);
  auto* const next = real("open64", &open64);
  return open_watched("open64", path, flags, [&] { return next(path, flags, mode); });
}
std::FILE* fopen(const char* path, const char* mode) {
  return fopen_watched(path, mode, [&] { return real("fopen", &fopen)(path, mode); });
}
std::FILE* fopen64(const char* path, const char* mode) {
  return fopen_watched(path, mode, [&] { return real("fopen64", &fopen64)(path, mode); });
}
ssize_t write(int file, const void* from, size_t bytes) {
  return fails("write", file) ? -1 : real("write", &write)(file, from, bytes);
}
ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  return fails("pwrite", file) ? -1 : real("pwrite", &pwrite)(file, from, bytes, at);
}
ssize_t pwrite64(int file, const void* from, size_t bytes, off64_t at) {
  return fails("pwrite64", file) ? -1 : real("pwrite64", &pwrite64)(file, from, bytes, at);
}
ssize_t writev(int file, const iovec* from, int parts) {
  return fails("writev", file) ? -1 : real("writev", &writev)(file, from, parts);
}
size_t fwrite(const void* from, size_t size, size_t count, std::FILE* file) {
  return fails("fwrite", fileno(file)) ? 0 : real("fwrite", &fwrite)(from, size, count, file);
}
int fflush(std::FILE* file) {
  const bool must_fail = file != nullptr && fails("fflush", fileno(file));
  return must_fail ? EOF : real("fflush", &fflush)(file);
}
int fsync(int file) { return fails("fsync", file) ? -1 : real("fsync", &fsync)(file); }
int fdatasync(int file) {
  return fails("fdatasync", file) ? -1 : real("fdatasync", &fdatasync)(file);
}
int ftruncate(int file, off_t bytes) {
  return fails("ftruncate", file) ? -1 : real("ftruncate", &ftruncate)(file, bytes);
}
int rename(const char* from, const char* to) {
  return fails("rename", to) ? -1 : real("rename", &rename)(from, to);
}
int unlink(const char* path) { return fails("unlink", path) ? -1 : real("unlink", &unlink)(path); }
int remove(const char* path) {
  return fails("remove", path) ? -1
                               : real("remove", static_cast<int (*)(const char*)>(&remove))(path);
}
int rmdir(const char* path) { return fails("rmdir", path) ? -1 : real("rmdir", &rmdir)(path); }
int mkdir(const char* path, mode_t mode) {
  return fails("mkdir", path) ? -1 : real("mkdir", &mkdir)(path, mode);
}
int symlink(const char* target, const char* path) {
  return fails("symlink", path) ? -1 : real("symlink", &symlink)(target, path);
}
int close(int file) {
  watch(file, false);
  return real("close", &close)(file);
}
int fclose(std::FILE* file) {
  const bool must_fail = fails("fclose", fileno(file));
  watch(fileno(file), false);
  const int result = real("fclose", &fclose)(file);
  return must_fail ? EOF : result;
}

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) {
  return fails_allocation(bytes, __builtin_return_address(0)) ? nullptr : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  return fails_allocation(count * bytes, __builtin_return_address(0)) ? nullptr
                                                                      : __libc_calloc(count, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return fails_allocation(bytes, __builtin_return_address(0)) ? nullptr
                                                              : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** to, size_t alignment, size_t bytes) {
  if (fails_allocation(bytes, __builtin_return_address(0))) return ENOMEM;
  *to = __libc_memalign(alignment, bytes);
  return *to == nullptr ? ENOMEM : 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* with) {
  if (is_of_program(__builtin_return_address(0)) && must_fail("threads", "pthread_create")) {
    return EAGAIN;
  }
  return real("pthread_create", &pthread_create)(thread, attributes, run, with);
}
}

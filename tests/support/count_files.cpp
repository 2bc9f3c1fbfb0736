// A library to preload into the ranks of a run: counts what each asks of the files below the folder
// COUNT_BELOW, and at its end writes COUNT_OUTPUT/<rank> with a line for each path: opens, bytes
// read, lookups (calls of stat), path.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace {

struct Count {
  long opens = 0;
  long bytes = 0;
  long lookups = 0;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class Counts {
 public:
  void open(const char* path, int file, bool is_folder) {
    if (file < 0 || !is_below(path)) return;
    const std::lock_guard lock(mutex_);
    Count& count = of_path_[path];
    ++count.opens;
    if (!is_folder) of_file_[file] = &count;
  }
  void read(int file, long bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = of_file_.find(file);
    if (found != of_file_.end() && bytes > 0) found->second->bytes += bytes;
  }
  void close(int file) {
    const std::lock_guard lock(mutex_);
    of_file_.erase(file);
  }
  void look_up(const char* path) {
    if (!is_below(path)) return;
    const std::lock_guard lock(mutex_);
    ++of_path_[path].lookups;
  }
  void write() {
    const std::string rank = variable("OMPI_COMM_WORLD_RANK");
    if (rank.empty()) return;
    std::FILE* file = std::fopen((variable("COUNT_OUTPUT") + "/" + rank).c_str(), "w");
    for (const auto& [path, count] : of_path_) {
      std::fprintf(file, "%ld %ld %ld %s\n", count.opens, count.bytes, count.lookups, path.c_str());
    }
    std::fclose(file);
  }

 private:
  bool is_below(const char* path) const { return std::string(path).starts_with(below_); }

  std::mutex mutex_;
  std::string below_ = variable("COUNT_BELOW") + "/";
  std::map<std::string, Count> of_path_;
  std::map<int, Count*> of_file_;  // by descriptor: those that are open
};

/// Never destroyed: libraries open and close files before this one begins and after it has ended.
Counts& counts() {
  static Counts* const all = new Counts;
  return *all;
}

struct AtEnd {
  ~AtEnd() { counts().write(); }
} at_end;

/// The function that is called where this library is not loaded.
template <class Function>
Function* real(const char* name, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int count_open(int file, const char* path, int flags) {
  counts().open(path, file, (flags & O_DIRECTORY) != 0);
  return file;
}

std::FILE* count_open(std::FILE* file, const char* path) {
  if (file != nullptr) counts().open(path, fileno(file), false);
  return file;
}

ssize_t count_read(int file, ssize_t bytes) {
  counts().read(file, bytes);
  return bytes;
}

}  // namespace

// Functions of the C library, with the names of files as they were given.
extern "C" {

int open(const char* path, int flags, ...) {
  __builtin_va_list rest;
  __builtin_va_start(rest, flags);
  const mode_t mode = __builtin_va_arg(rest, mode_t);
  __builtin_va_end(rest);
  static auto* const next = real("open", &open);
  return count_open(next(path, flags, mode), path, flags);
}

int openat(int folder, const char* path, int flags, ...) {
  __builtin_va_list rest;
  __builtin_va_start(rest, flags);
  const mode_t mode = __builtin_va_arg(rest, mode_t);
  __builtin_va_end(rest);
  static auto* const next = real("openat", &openat);
  return count_open(next(folder, path, flags, mode), path, flags);
}

std::FILE* fopen(const char* path, const char* mode) {
  static auto* const next = real("fopen", &fopen);
  return count_open(next(path, mode), path);
}

std::FILE* fopen64(const char* path, const char* mode) {
  static auto* const next = real("fopen64", &fopen64);
  return count_open(next(path, mode), path);
}

ssize_t read(int file, void* to, size_t bytes) {
  static auto* const next = real("read", &read);
  return count_read(file, next(file, to, bytes));
}

ssize_t pread(int file, void* to, size_t bytes, off_t offset) {
  static auto* const next = real("pread", &pread);
  return count_read(file, next(file, to, bytes, offset));
}

size_t fread(void* to, size_t size, size_t count, std::FILE* file) {
  static auto* const next = real("fread", &fread);
  const size_t got = next(to, size, count, file);
  counts().read(fileno(file), static_cast<long>(got * size));
  return got;
}

int close(int file) {
  static auto* const next = real("close", &close);
  counts().close(file);
  return next(file);
}

int fclose(std::FILE* file) {
  static auto* const next = real("fclose", &fclose);
  counts().close(fileno(file));
  return next(file);
}

int stat(const char* path, struct stat* found) {
  static auto* const next = real("stat", static_cast<int (*)(const char*, struct stat*)>(&stat));
  counts().look_up(path);
  return next(path, found);
}

int lstat(const char* path, struct stat* found) {
  static auto* const next = real("lstat", &lstat);
  counts().look_up(path);
  return next(path, found);
}
}

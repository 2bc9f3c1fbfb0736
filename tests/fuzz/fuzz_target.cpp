#include "tests/fuzz/fuzz_target.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>

#include "tests/support/source_dir.h"
#include "tests/support/temp_folder.h"

namespace bertha::fuzz {
namespace {

namespace fs = std::filesystem;

/// Files in memory are written and read thousands of times per second.
const TempFolder& scratch_folder() {
  static const TempFolder folder = [] {
    std::error_code ignored;
    if (fs::is_directory("/dev/shm", ignored)) setenv("TMPDIR", "/dev/shm", 1);
    return TempFolder();
  }();
  return folder;
}

[[noreturn]] void finding(const FuzzTarget& target, const std::string& what) {
  std::fprintf(stderr, "finding in %s: %s\n", target.name, what.c_str());
  std::abort();
}

}  // namespace

std::vector<FuzzTarget> all_targets() {
  std::vector<FuzzTarget> all;
  for (const auto& some : {shard_targets(), data_targets(), checkpoint_targets(), text_targets()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

const FuzzTarget* find_target(std::string_view name) {
  static const std::vector<FuzzTarget> all = all_targets();
  const auto found = std::ranges::find(all, name, &FuzzTarget::name);
  return found == all.end() ? nullptr : &*found;
}

void execute(const FuzzTarget& target, const std::string& bytes) {
  try {
    target.read(bytes);
  } catch (const Error& error) {
    const std::string what = error.what();
    if (error.code != target.refusal) {
      finding(target, concat("exit code ", static_cast<int>(error.code), ": ", what));
    }
    if (what.find(scratch_folder().path()) == std::string::npos) {
      finding(target, "no file is named: " + what);
    }
  } catch (const std::exception& error) {
    finding(target, concat("not an Error: ", error.what()));
  }
}

std::string scratch_path(const std::string& name) { return scratch_folder().path(name); }

std::string scratch_file(const std::string& name, std::string_view bytes) {
  const std::string path = scratch_path(name);
  // Cut afterwards: a file that is emptied first gives its memory back, which takes longer.
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const auto size = static_cast<off_t>(bytes.size());
  BERTHA_CHECK(file >= 0 && write(file, bytes.data(), bytes.size()) == size, path);
  BERTHA_CHECK(ftruncate(file, size) == 0 && close(file) == 0, path);
  return path;
}

std::vector<std::string> golden_files(const std::string& folder, const std::string& ending,
                                      int64_t most_bytes) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(kSourceDir) / "tests/golden" / folder)) {
    if (entry.is_regular_file() && entry.path().string().ends_with(ending) &&
        static_cast<int64_t>(entry.file_size()) <= most_bytes) {
      paths.push_back(entry.path());
    }
  }
  std::ranges::sort(paths);
  std::vector<std::string> contents;
  for (const fs::path& path : paths) contents.push_back(bytes_of(path.string()));
  return contents;
}

void use(int64_t value) {
  static std::atomic<int64_t> last{0};
  last.store(value, std::memory_order_relaxed);
}

}  // namespace bertha::fuzz

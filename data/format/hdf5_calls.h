#pragma once

#include <hdf5.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <type_traits>

#include "data/format/hdf5_file.h"
#include "data/format/hdf5_guard.h"
#include "kernels/base/error.h"

namespace bertha {

// How data/format/hdf5_*.cpp call the library; nothing else includes this.

static_assert(std::is_same_v<hid_t, int64_t>, "Hdf5Id keeps identifiers as int64_t");
static_assert(std::is_same_v<herr_t, int>, "Hdf5Id::Close returns herr_t");

/// Enters the library: one thread at a time, because the serial library shares its tables between
/// files. Recursive, since identifiers are closed inside of other calls. Its own error printing is
/// switched off here too: our sentences replace it. So is its work at the end of the program, which
/// would write what had no memory once more, into an image that is gone.
inline std::unique_lock<std::recursive_mutex> enter_library() {
  static std::recursive_mutex mutex;
  static const herr_t without_exit_handler = H5dont_atexit();
  static_cast<void>(without_exit_handler);
  std::unique_lock lock(mutex);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  return lock;
}

/// Inside of the library, which reads a file that strangers may have written.
struct ReadCall {
  ReadCall(const std::string& path, int64_t file_bytes)
      : lock(enter_library()), guard(path, file_bytes) {}

  std::unique_lock<std::recursive_mutex> lock;
  Hdf5Guard guard;
};

/// False where it was a damaged file that made the library ask for more than there can be.
inline bool memory_is_short() {
  constexpr size_t kProbeBytes = size_t{64} << 20;
  void* volatile probe = std::malloc(kProbeBytes);  // volatile, or both calls are left out
  std::free(probe);
  return probe == nullptr;
}

/// Error(code) with the given words and the innermost reason of the last failed call, shortened to
/// the operating system's words where the library quotes them; Error(kMemory) when it is memory.
template <class First, class... Parts>
[[noreturn]] void fail_in_library(ExitCode code, const First& first, const Parts&... parts) {
  struct Reason {
    std::string text;
    bool is_memory = false;
  } reason;
  const auto keep_first = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    auto& kept = *static_cast<Reason*>(out);
    if (kept.text.empty() && error->desc != nullptr) {
      kept = {error->desc, error->min_num == H5E_NOSPACE || error->min_num == H5E_CANTALLOC};
    }
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason);
  if (reason.is_memory && (!Hdf5Guard::is_alive() || memory_is_short())) {
    fail(ExitCode::kMemory, first, ": out of host memory (", reason.text, ")");
  }
  const std::string quote = "error message = '";
  if (const size_t begin = reason.text.find(quote); begin != std::string::npos) {
    const size_t from = begin + quote.size();
    reason.text = reason.text.substr(from, reason.text.find('\'', from) - from);
  }
  if (reason.text.empty()) reason.text = "no reason given by the HDF5 library";
  fail(code, first, parts..., " (", reason.text, ")");
}

/// The value of an HDF5 call, unless it is negative: then Error(kData) or Error(kMemory) as above.
template <class Value, class... Parts>
Value checked(Value value, const Parts&... parts) {
  if (value < 0) fail_in_library(ExitCode::kData, parts...);
  return value;
}

template <class... Parts>
Hdf5Id own(hid_t id, Hdf5Id::Close close, const Parts&... parts) {
  return Hdf5Id(checked(id, parts...), close);
}

}  // namespace bertha

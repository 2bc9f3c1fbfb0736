#pragma once

#include <hdf5.h>

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
/// switched off here too: our sentences replace it.
inline std::unique_lock<std::recursive_mutex> enter_library() {
  static std::recursive_mutex mutex;
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

/// The innermost reason of the last failed call, shortened to the operating system's words where
/// the library quotes them.
inline std::string library_reason() {
  std::string reason;
  const auto keep_first = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    auto& text = *static_cast<std::string*>(out);
    if (text.empty() && error->desc != nullptr) text = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &reason);
  const std::string quote = "error message = '";
  if (const size_t begin = reason.find(quote); begin != std::string::npos) {
    const size_t first = begin + quote.size();
    reason = reason.substr(first, reason.find('\'', first) - first);
  }
  return reason.empty() ? "no reason given by the HDF5 library" : reason;
}

/// The value of an HDF5 call, unless it is negative: then Error(kData) with the given words and the
/// library's reason.
template <class Value, class... Parts>
Value checked(Value value, const Parts&... parts) {
  if (value < 0) fail(ExitCode::kData, parts..., " (", library_reason(), ")");
  return value;
}

template <class... Parts>
Hdf5Id own(hid_t id, Hdf5Id::Close close, const Parts&... parts) {
  return Hdf5Id(checked(id, parts...), close);
}

}  // namespace bertha

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

/// One thread at a time, because the serial library shares its tables between files. Recursive,
/// since identifiers are closed inside of other calls.
inline std::unique_lock<std::recursive_mutex> lock_library() {
  static std::recursive_mutex mutex;
  return std::unique_lock(mutex);
}

/// Enters the library, unless it has failed (hdf5_guard.h): then it may wait for itself. Its own
/// error printing is switched off here too: our sentences replace it; and so is its cleaning up at
/// the exit, which a failed one does not survive.
inline std::unique_lock<std::recursive_mutex> enter_library() {
  auto lock = lock_library();
  Hdf5Guard::fail_if_broken();
  static const herr_t no_cleaning_up = H5dont_atexit();
  static_cast<void>(no_cleaning_up);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  return lock;
}

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

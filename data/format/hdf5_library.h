#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <mutex>
#include <span>
#include <string>

#include "kernels/base/error.h"

namespace bertha {

// How data/format/hdf5_*.cpp call the HDF5 library. These files alone include hdf5.h; its hid_t and
// herr_t are int64_t and int here.

/// Element types that shards use; kOther is everything else, described in words.
enum class Hdf5Element : uint8_t { kI8, kI16, kI32, kOther };
/// Rows of fixed extents, or one variable-length list per row.
enum class Hdf5Rows : uint8_t { kPlain, kRagged };

/// Enters the library: one thread at a time, because the serial library shares its tables between
/// files. Recursive, because identifiers are closed within other calls. Also switches off its own
/// error printing, which our messages replace, and its work at the end of the program, which would
/// retry writes that ran out of memory, into an image that no longer exists.
std::unique_lock<std::recursive_mutex> enter_library();

/// During its lifetime, a crash of the HDF5 library in this thread, or more CPU time than reading
/// the file can take, ends the program with ExitCode::kData and a message that names the file:
/// damaged files cause both. The program cannot continue because library and memory may be in any
/// state.
///
/// Threads   one at a time: under the lock of the library.
class Hdf5Guard {
 public:
  /// `path` outlives this.
  Hdf5Guard(const std::string& path, int64_t file_bytes);
  ~Hdf5Guard();
  Hdf5Guard(const Hdf5Guard&) = delete;
  Hdf5Guard& operator=(const Hdf5Guard&) = delete;

 private:
  timer_t timer_{};
  bool has_timer_ = false;
};

/// Inside of the library, which reads a file that strangers may have written.
struct ReadCall {
  ReadCall(const std::string& path, int64_t file_bytes)
      : lock(enter_library()), guard(path, file_bytes) {}

  std::unique_lock<std::recursive_mutex> lock;
  Hdf5Guard guard;
};

/// Owns one HDF5 identifier and closes it with the function it was opened for.
class Hdf5Id {
 public:
  using Close = int (*)(int64_t id);
  Hdf5Id() = default;
  Hdf5Id(int64_t id, Close close_with) : id_(id), close_(close_with) {}
  Hdf5Id(Hdf5Id&& other) noexcept;
  Hdf5Id& operator=(Hdf5Id&& other) noexcept;
  ~Hdf5Id();

  int64_t get() const { return id_; }
  /// Closes now; false when the library reports a failure.
  bool close_now();

 private:
  int64_t id_ = -1;
  Close close_ = nullptr;
};

/// Error(code) with subject, words and the innermost reason of the last failed call, shortened to
/// the operating system's words if the library quotes them; Error(kMemory) if memory ran out.
[[noreturn]] void fail_in_library(ExitCode code, const std::string& subject,
                                  const std::string& words = "");

/// The value of an HDF5 call, unless it is negative: then Error(kData) or Error(kMemory) as above.
template <class Value, class Subject, class... Words>
Value checked(Value value, const Subject& subject, const Words&... words) {
  if (value < 0) fail_in_library(ExitCode::kData, subject, concat("", words...));
  return value;
}

template <class... Words>
Hdf5Id own(int64_t id, Hdf5Id::Close close, const Words&... words) {
  return Hdf5Id(checked(id, words...), close);
}

/// Properties that open files without locking them.
Hdf5Id access_properties();

/// Teaches the library h5py's LZF filter, and to read lists as descriptor_type(): it would
/// otherwise turn them into pointers, and trust their sizes.
void prepare_to_read();
/// The stored form of a list: kRowDescriptorBytes (global_heap.h).
Hdf5Id descriptor_type();

/// h5py's number of the LZF filter, in the registry of filters.
inline constexpr int kLzfFilter = 32000;
/// The chunk size of the dataset that this thread reads next: LZF streams do not state theirs, and
/// h5py adds it to the filter for numbers only, not for lists.
void expect_lzf_chunks(size_t chunk_bytes);

/// Decompresses a stream of h5py's LZF filter (liblzf) to the start of `out`. Returns the number of
/// bytes, or 0 if `in` is damaged or does not fit into `out`.
size_t lzf_decode(std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace bertha

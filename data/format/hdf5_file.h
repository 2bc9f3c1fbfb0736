#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bertha {

/// Element types that shards use; kOther is everything else, described in words.
enum class Hdf5Element : uint8_t { kI8, kI16, kOther };
/// Rows of fixed extents, or one variable-length list per row.
enum class Hdf5Rows : uint8_t { kPlain, kRagged };

/// What a dataset is, without its contents.
struct Hdf5Dataset {
  Hdf5Element element = Hdf5Element::kOther;
  Hdf5Rows rows = Hdf5Rows::kPlain;
  std::vector<int64_t> extents;
  std::string type_text;  // "int16", "variable-length int16", "float32", ...
};

inline constexpr int64_t kRowDescriptorBytes = 16;  // u32 length, u64 address, u32 index

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

/// An HDF5 file opened for reading, without file locks (they fail on many cluster file systems).
///
/// Errors    Error(kData) naming the file, the dataset and what the library found, Error(kMemory)
///           naming the file. Where the file crashes the library or keeps it in a loop, the program
///           ends (hdf5_guard.h).
/// Threads   any; the serial library is entered under one process-wide lock.
class Hdf5Input {
 public:
  explicit Hdf5Input(const std::string& path);
  ~Hdf5Input();
  Hdf5Input(const Hdf5Input&) = delete;
  Hdf5Input& operator=(const Hdf5Input&) = delete;

  const std::string& path() const { return path_; }
  bool has(const std::string& name) const;
  /// Refuses also what data/format/hdf5_storage.h does; to be called before the contents are read.
  Hdf5Dataset describe(const std::string& name) const;
  /// Rows [first_row, first_row + num_rows) of a plain dataset; `values` has their exact size.
  void read(const std::string& name, int64_t first_row, int64_t num_rows,
            std::span<int8_t> values) const;
  void read(const std::string& name, int64_t first_row, int64_t num_rows,
            std::span<int16_t> values) const;
  /// All rows of a ragged dataset as the file has them, kRowDescriptorBytes each; global_heap.h
  /// reads the lists themselves.
  std::vector<std::byte> read_descriptors(const std::string& name, int64_t num_rows) const;
  /// Where the addresses of lists count from: the end of the user block.
  int64_t list_base_bytes() const;

 private:
  Hdf5Id open_dataset(const std::string& name) const;
  void read_native(const std::string& name, int64_t first_row, int64_t num_rows,
                   int64_t memory_type, int64_t num_values, void* values) const;

  std::string path_;
  int64_t file_bytes_ = 0;
  Hdf5Id file_;
};

/// The bytes of a file that is written in memory.
class FileImage {
 public:
  /// Null when there is not enough memory; the old bytes are kept then.
  void* resize(size_t size_bytes);
  std::string_view bytes() const { return {bytes_.get(), size_bytes_}; }

 private:
  struct Free {
    void operator()(char* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<char, Free> bytes_;
  size_t size_bytes_ = 0;
  size_t capacity_bytes_ = 0;
};

/// An HDF5 file being made: datasets that grow by blocks of rows. It is made in memory, since the
/// library uses freed memory after a failed write; whoever stores the bytes handles a full disk.
/// No time stamps are stored, so equal contents give equal bytes.
///
/// Errors    Error(kMemory) naming the file.
/// Threads   one at a time per object; objects are independent.
class Hdf5Output {
 public:
  /// `path` is for messages only.
  explicit Hdf5Output(const std::string& path);

  /// Plain rows of `columns` values (0: one value per row, rank 1), or ragged rows (columns 0).
  void create(const std::string& name, Hdf5Element element, Hdf5Rows rows, int64_t columns,
              int64_t rows_per_chunk);
  void append(const std::string& name, int64_t num_rows, std::span<const int8_t> values);
  void append(const std::string& name, int64_t num_rows, std::span<const int16_t> values);
  void append_ragged(const std::string& name, std::span<const std::span<const int8_t>> rows);
  void append_ragged(const std::string& name, std::span<const std::span<const int16_t>> rows);
  /// Ends the file and gives its bytes, which live as long as this object.
  std::string_view close();

 private:
  struct Growing {
    Hdf5Id id;
    int64_t num_rows = 0;
    int64_t columns = 0;
    Hdf5Rows rows = Hdf5Rows::kPlain;
  };
  void write_rows(const std::string& name, int64_t num_rows, Hdf5Element element,
                  const void* values);

  std::string path_;
  std::unique_ptr<FileImage> image_;  // at a fixed address; outlives file_
  Hdf5Id file_;
  std::map<std::string, Growing> datasets_;
};

}  // namespace bertha

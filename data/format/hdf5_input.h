#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/format/global_heap.h"
#include "data/format/hdf5_library.h"

namespace bertha {

/// The description of a dataset, without its contents.
struct Hdf5Dataset {
  Hdf5Element element = Hdf5Element::kOther;
  Hdf5Rows rows = Hdf5Rows::kPlain;
  std::vector<int64_t> extents;
  std::string type_text;  // "int16", "variable-length int16", "float32", ...
};

/// An HDF5 file opened for reading, without file locks (they fail on many cluster file systems).
///
/// Errors    Error(kData) naming the file, the dataset and what the library found, Error(kMemory)
///           naming the file. If the file crashes the library or keeps it in a loop, the program
///           ends (Hdf5Guard).
/// Threads   one per object; the serial library is entered under one process-wide lock.
class Hdf5Input {
 public:
  explicit Hdf5Input(const std::string& path);
  ~Hdf5Input();
  Hdf5Input(const Hdf5Input&) = delete;
  Hdf5Input& operator=(const Hdf5Input&) = delete;

  const std::string& path() const { return path_; }
  bool has(const std::string& name) const;

  /// Call it before reading the contents. Refuses links, values in other files, unsupported
  /// filters, rows that were never written, and sizes that the file cannot contain; until then no
  /// stated size is allocated.
  Hdf5Dataset describe(const std::string& name);

  /// Rows [first_row, first_row + num_rows) of a plain dataset; `values` has their exact size. T is
  /// int8_t for datasets of kI8, int16_t or int32_t for kI16 and kI32, here and below; values that
  /// T cannot represent become its nearest one.
  template <class T>
  void read(const std::string& name, int64_t first_row, int64_t num_rows,
            std::vector<T>& values) const;
  /// Rows [first_row, first_row + num_rows) of a ragged dataset that was described.
  template <class T>
  RaggedRows<T> read_lists(const std::string& name, int64_t first_row, int64_t num_rows);
  /// The number of elements in each row of a ragged dataset, without reading them.
  std::vector<int64_t> list_lengths(const std::string& name);

 private:
  Hdf5Id open_dataset(const std::string& name) const;
  int64_t list_base_bytes() const;
  const std::vector<std::byte>& descriptors_of(const std::string& name);
  void read_values(const std::string& name, int64_t first_row, int64_t num_rows,
                   int64_t memory_type, int64_t num_values, void* values) const;

  std::string path_;
  int64_t file_bytes_ = 0;
  Hdf5Id file_;
  std::optional<GlobalHeapReader> heap_;                       // with the first ragged dataset
  std::map<std::string, std::vector<std::byte>> descriptors_;  // by ragged dataset
  std::map<std::string, Hdf5Element> ragged_elements_;
};

}  // namespace bertha

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/format/hdf5_library.h"

namespace bertha {

class FileImage;

/// A new HDF5 file: datasets that grow by blocks of rows. It is built in memory because the library
/// uses freed memory after a failed write; the code that stores the bytes handles a full disk.
/// Contains no time stamps, so equal contents give equal bytes.
///
/// Errors    Error(kMemory) naming the file.
/// Threads   one at a time per object; objects are independent.
class Hdf5Output {
 public:
  /// `path` is for messages only.
  explicit Hdf5Output(const std::string& path);
  ~Hdf5Output();

  /// Plain rows of `columns` values (0: one value per row, rank 1), or ragged rows (columns 0).
  void create(const std::string& name, Hdf5Element element, Hdf5Rows rows, int64_t columns,
              int64_t rows_per_chunk);
  /// Plain rows. Values are int8_t, int16_t or int32_t, here and below; of int32_t, a dataset of
  /// kI16 stores the low 16 bits.
  template <class T>
  void append(const std::string& name, int64_t num_rows, const std::vector<T>& values);
  /// Ragged rows: row i is the list of the values [offsets[i], offsets[i + 1]).
  template <class T>
  void append_lists(const std::string& name, const std::vector<T>& values,
                    const std::vector<int64_t>& offsets);
  /// Ends the file and returns its bytes, which live as long as this object.
  std::string_view close();

 private:
  struct Growing {
    Hdf5Id id;
    Hdf5Id type;  // of a row's value or list, in memory and in the file
    Hdf5Element element = Hdf5Element::kOther;
    int64_t columns = 0;
    int64_t num_rows = 0;
  };
  void write_rows(const std::string& name, int64_t num_rows, const void* values);

  std::string path_;
  std::unique_ptr<FileImage> image_;  // at a fixed address; outlives file_
  Hdf5Id file_;
  std::map<std::string, Growing> datasets_;
};

}  // namespace bertha

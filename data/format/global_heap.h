#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/files/byte_file.h"

namespace bertha {

inline constexpr int64_t kRowDescriptorBytes = 16;  // u32 length, u64 address, u32 index

/// Lists of different lengths in one array: row i owns [offsets[i], offsets[i + 1]).
template <class T>
struct RaggedRows {
  std::vector<int64_t> offsets{0};
  std::vector<T> values;

  int64_t size() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t length(int64_t row) const {
    const auto i = static_cast<size_t>(row);
    return offsets[i + 1] - offsets[i];
  }
  std::span<const T> operator[](int64_t row) const {
    const auto first = static_cast<size_t>(offsets[static_cast<size_t>(row)]);
    return std::span(values).subspan(first, static_cast<size_t>(length(row)));
  }
};

/// Reads ragged HDF5 rows straight from the file. A row is a 16-byte descriptor (length, address,
/// index) of an object in a global heap collection (FORMAT.md). The library would allocate every
/// row by itself and copies an object without comparing its size with the descriptor's, so that one
/// damaged byte overruns its buffer; here every address and size is checked first, and no lock is
/// held.
///
/// Errors    Error(kData) naming file, dataset and row.
/// Threads   one per object.
/// Source    HDF5 File Format Specification 3.0, III.E "Global Heap"; VIII.B vlen descriptors.
class GlobalHeapReader {
 public:
  /// Addresses of lists count from `base_bytes` of the file.
  GlobalHeapReader(const std::string& path, int64_t base_bytes);

  /// Rows [first_row, first_row + num_rows) of a dataset with these descriptors, whose elements the
  /// file has as Stored. Both are int8_t, or each is int16_t or int32_t; values that T cannot
  /// represent become its nearest one.
  template <class T, class Stored>
  RaggedRows<T> read_rows(const std::string& dataset, std::span<const std::byte> descriptors,
                          int64_t first_row, int64_t num_rows);
  /// The number of elements of each row, without reading them.
  std::vector<int64_t> read_lengths(const std::string& dataset,
                                    std::span<const std::byte> descriptors) const;

 private:
  struct Place {
    const std::string& dataset;
    int64_t row;
  };
  struct Descriptor {
    int64_t length = 0;
    int64_t address_bytes = 0;
    uint32_t index = 0;
  };
  struct Object {
    int64_t begin_bytes = 0;
    int64_t size_bytes = -1;  // -1: no such object
  };
  struct Collection {
    int64_t address_bytes = -1;
    std::vector<std::byte> bytes;
    std::vector<Object> objects;  // by index in the collection
  };

  void read_at(int64_t offset_bytes, std::span<std::byte> out, const Place& place) const;
  /// The descriptor of a row, with its length checked.
  Descriptor descriptor_of(const Place& place, std::span<const std::byte> descriptors) const;
  const Collection& collection_at(int64_t address_bytes, const Place& place);
  void find_objects(Collection& collection, const Place& place) const;
  [[noreturn]] void damaged(const Place& place, const std::string& what) const;

  std::string path_;
  ByteFile file_;
  int64_t base_bytes_;
  // Neighbouring rows share collections; collections of other datasets lie between them.
  std::array<Collection, 64> cache_;
  int64_t large_bytes_ = 0;  // bytes of collections above the smallest, since the cache was empty
};

}  // namespace bertha

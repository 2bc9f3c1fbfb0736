#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/new_file.h"

namespace bertha {

/// One tensor of a safetensors file: little-endian, row-major, bytes [begin, end) of the data part.
struct SafeTensor {
  std::string dtype;  // "F32", "F16", "BF16", "I64", ...
  std::vector<int64_t> shape;
  int64_t begin_byte = 0;
  int64_t end_byte = 0;

  int64_t elements() const;
};

/// Header of a safetensors file: eight bytes of length, then JSON.
struct SafeTensorsHeader {
  std::map<std::string, SafeTensor> tensors;
  std::map<std::string, std::string> metadata;
  int64_t data_offset_bytes = 0;  // start of the data part in the file
  // Kept open, so that all tensors come from the file with this header even if a run removes or
  // replaces it meanwhile.
  std::shared_ptr<std::ifstream> file;
};

/// Error(kData) naming the file: not a safetensors file, offsets that overlap, leave gaps or exceed
/// the file, sizes that disagree with shape and dtype.
SafeTensorsHeader read_safetensors_header(const std::string& path);

/// Reads `count` elements of an F32, F16 or BF16 tensor from its element `first` on, as f32, from
/// the open file of a header; errors name it `path`. Error(kData) for other dtypes and short reads.
std::vector<float> read_safetensor(const std::string& path, const SafeTensorsHeader& header,
                                   const std::string& name, int64_t first, int64_t count);

/// Whether elements of a dtype can be read as f32: F32, F16 and BF16.
bool is_read_as_float(const std::string& dtype);
/// Converts elements of such a dtype, little-endian.
std::vector<float> as_floats(const std::string& dtype, std::string_view bytes);

/// Writes a file of tensors in a given order. finish() makes it appear complete; without that it
/// does not appear.
class SafeTensorsWriter {
 public:
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    std::string dtype = "F32";  // or another of the format's
  };

  SafeTensorsWriter(const std::string& path, const std::vector<Entry>& entries,
                    const std::map<std::string, std::string>& metadata);
  /// The next values in file order; tensors may come in pieces.
  void append(const float* values, int64_t count) { append_bytes(values, count * 4); }
  void append(const int32_t* values, int64_t count) { append_bytes(values, count * 4); }
  void append(const int64_t* values, int64_t count) { append_bytes(values, count * 8); }
  /// Raw bytes, for any dtype.
  void append(const char* bytes, int64_t count) { append_bytes(bytes, count); }
  /// Error(kData) with the path and the system's reason (disk full, ...).
  void finish();

 private:
  void append_bytes(const void* bytes, int64_t size_bytes);
  void write(const void* bytes, size_t size_bytes);

  std::string path_;
  NewFile file_;
  int64_t bytes_left_ = 0;
};

}  // namespace bertha

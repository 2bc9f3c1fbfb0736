#include "harness/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/files/json_file.h"
#include "kernels/base/error.h"
#include "kernels/base/half.h"

namespace bertha {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxHeaderBytes = int64_t{16} << 20;  // 100,000 tensors; parsed, 20 times that

int64_t dtype_bytes(const std::string& dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return 0;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  fail(ExitCode::kData, path, ": ", what, "; the file is torn or not a safetensors file.");
}

/// Bytes of a tensor; nothing if the number exceeds 64 bits.
std::optional<int64_t> bytes_of(const std::vector<int64_t>& shape, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

SafeTensor parse_tensor(const std::string& path, const std::string& name, const JsonField& field,
                        int64_t data_bytes) {
  SafeTensor tensor{.dtype = field["dtype"].text(), .shape = {}};
  field["shape"].for_each([&](const JsonField& extent) { tensor.shape.push_back(extent.count()); });
  std::vector<int64_t> offsets;
  field["data_offsets"].for_each(
      [&](const JsonField& offset) { offsets.push_back(offset.count()); });
  if (offsets.size() != 2) field["data_offsets"].wrong("two offsets");
  tensor.begin_byte = offsets[0];
  tensor.end_byte = offsets[1];
  if (tensor.begin_byte > tensor.end_byte || tensor.end_byte > data_bytes) {
    refuse(path, concat("tensor ", name, " is at bytes ", tensor.begin_byte, " to ",
                        tensor.end_byte, " of ", data_bytes, " bytes of data"));
  }
  const int64_t element_bytes = dtype_bytes(tensor.dtype);
  if (element_bytes == 0) refuse(path, "tensor " + name + " has dtype " + tensor.dtype);
  const std::optional<int64_t> want_bytes = bytes_of(tensor.shape, element_bytes);
  if (!want_bytes) refuse(path, "tensor " + name + " has more bytes than 64 bits can count");
  if (tensor.end_byte - tensor.begin_byte != *want_bytes) {
    refuse(path, concat("tensor ", name, " has ", tensor.end_byte - tensor.begin_byte,
                        " bytes, want ", *want_bytes, " for its shape"));
  }
  return tensor;
}

/// Checks that the tensors cover the data part exactly once.
void check_coverage(const std::string& path, const SafeTensorsHeader& header, int64_t data_bytes) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const auto& [name, tensor] : header.tensors) {
    ranges.emplace_back(tensor.begin_byte, tensor.end_byte);
  }
  std::ranges::sort(ranges);
  int64_t covered = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != covered) refuse(path, concat("tensor data starts at ", begin, ", want ", covered));
    covered = end;
  }
  if (covered != data_bytes) {
    refuse(path, concat("contains ", data_bytes, " bytes of data, want ", covered));
  }
}

}  // namespace

int64_t SafeTensor::elements() const {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

SafeTensorsHeader read_safetensors_header(const std::string& path) {
  std::error_code no_file;  // set for a pipe too, which must not be opened
  const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(path, no_file));
  SafeTensorsHeader header;
  header.file = std::make_shared<std::ifstream>();
  std::ifstream& file = *header.file;
  if (!no_file) file.open(path, std::ios::binary);
  if (!file.is_open()) fail(ExitCode::kData, path, ": cannot be opened; check the path.");
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  if (!file || header_bytes > static_cast<uint64_t>(kMaxHeaderBytes) ||
      static_cast<int64_t>(header_bytes) + 8 > file_bytes) {
    refuse(path, concat("is ", file_bytes, " bytes long with a header of ", header_bytes));
  }
  std::string text(header_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(header_bytes));

  header.data_offset_bytes = 8 + static_cast<int64_t>(header_bytes);
  try {
    const Json json = parse_json(text);
    const int64_t data_bytes = file_bytes - header.data_offset_bytes;
    JsonField(path, json).for_each_key([&](const std::string& name, const JsonField& field) {
      if (name == "__metadata__") {
        field.for_each_key([&](const std::string& key, const JsonField& value) {
          header.metadata[key] = value.text();
        });
      } else {
        header.tensors[name] = parse_tensor(path, name, field, data_bytes);
      }
    });
  } catch (const JsonError& error) {
    refuse(path, concat("has a header that cannot be read (", error.what(), ")"));
  }
  check_coverage(path, header, file_bytes - header.data_offset_bytes);
  return header;
}

std::vector<float> read_safetensor(const std::string& path, const SafeTensorsHeader& header,
                                   const std::string& name, int64_t first, int64_t count) {
  const auto found = header.tensors.find(name);
  if (found == header.tensors.end()) fail(ExitCode::kData, path, ": has no tensor ", name, ".");
  const SafeTensor& tensor = found->second;
  BERTHA_CHECK(first >= 0 && count >= 0 && first + count <= tensor.elements(), "elements [", first,
               ", ", first + count, ") of ", name, ", which has ", tensor.elements());
  if (!is_read_as_float(tensor.dtype)) {
    fail(ExitCode::kData, path, ": tensor ", name, " is ", tensor.dtype,
         ", want F32, F16 or BF16; convert the file.");
  }
  const int64_t element_bytes = dtype_bytes(tensor.dtype);
  std::string raw(static_cast<size_t>(count * element_bytes), '\0');
  std::ifstream& file = *header.file;
  file.clear();  // errors of an earlier read
  file.seekg(header.data_offset_bytes + tensor.begin_byte + first * element_bytes);
  file.read(raw.data(), static_cast<std::streamsize>(raw.size()));
  if (!file) refuse(path, "ends inside tensor " + name);
  return as_floats(tensor.dtype, raw);
}

bool is_read_as_float(const std::string& dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16";
}

std::vector<float> as_floats(const std::string& dtype, std::string_view bytes) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(dtype_bytes(dtype)));
  if (dtype == "F32") {
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * sizeof(bits), sizeof(bits));
    values[i] = dtype == "F16" ? to_float(Half{bits}) : to_float(BFloat16{bits});
  }
  return values;
}

SafeTensorsWriter::SafeTensorsWriter(const std::string& path, const std::vector<Entry>& entries,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), file_(path) {
  Json json = Json::object();
  if (!metadata.empty()) json["__metadata__"] = metadata;
  for (const Entry& entry : entries) {
    const SafeTensor tensor{.dtype = entry.dtype, .shape = entry.shape};
    const int64_t begin = bytes_left_;
    bytes_left_ += tensor.elements() * dtype_bytes(tensor.dtype);
    json[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {begin, bytes_left_}}};
  }
  std::string text = json.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data part starts aligned
  const uint64_t header_bytes = text.size();
  write(&header_bytes, sizeof(header_bytes));
  write(text.data(), text.size());
}

void SafeTensorsWriter::write(const void* bytes, size_t size_bytes) {
  file_.write({static_cast<const char*>(bytes), size_bytes});
}

void SafeTensorsWriter::append_bytes(const void* bytes, int64_t size_bytes) {
  BERTHA_CHECK(size_bytes <= bytes_left_, path_, ": ", size_bytes, " bytes, room for ",
               bytes_left_);
  write(bytes, static_cast<size_t>(size_bytes));
  bytes_left_ -= size_bytes;
}

void SafeTensorsWriter::finish() {
  BERTHA_CHECK(bytes_left_ == 0, path_, ": ", bytes_left_, " bytes are missing");
  file_.commit();
}

}  // namespace bertha

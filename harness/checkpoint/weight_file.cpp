#include "harness/checkpoint/weight_file.h"

#include <algorithm>
#include <set>
#include <vector>

#include "harness/checkpoint/name_map.h"
#include "harness/checkpoint/safetensors.h"
#include "kernels/base/half.h"

namespace bertha {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    text += concat(axis == 0 ? "" : ",", shape[axis]);
  }
  return text + "]";
}

const SafeTensor* find_tensor(const SafeTensorsHeader& header, const std::string& name) {
  const auto found = header.tensors.find(name);
  return found == header.tensors.end() ? nullptr : &found->second;
}

/// Elements on the host in f32: where they are, or widened into `storage`.
const float* as_floats(const View& values, std::vector<float>& storage) {
  if (values.dtype == DType::kF32) return values.as<float>();
  storage.resize(static_cast<size_t>(values.elements()));
  for (size_t i = 0; i < storage.size(); ++i) {
    storage[i] = values.dtype == DType::kF16 ? to_float(values.as<Half>()[i])
                                             : to_float(values.as<BFloat16>()[i]);
  }
  return storage.data();
}

}  // namespace

void write_weight_file(const std::string& path, const CheckpointParts& parts) {
  const View weights = parts.optimizer->weights();
  const Buffer pinned = parts.device->allocate_pinned(weights.bytes());
  parts.device->copy(*parts.stream, pinned.data(), weights.data, weights.bytes());
  parts.stream->wait_on_host();
  write_weight_file(path, *parts.table, parts.dims,
                    View(pinned.data(), weights.dtype, {weights.elements()}));
}

void write_weight_file(const std::string& path, const ParamTable& table, const Dims& dims,
                       const View& flat) {
  std::vector<SafeTensorsWriter::Entry> entries;
  const std::vector<NamedRows> names = hugging_face_names(table, dims);
  for (const NamedRows& rows : names) {
    entries.push_back({.name = rows.foreign_name, .shape = rows.foreign_shape});
  }
  SafeTensorsWriter writer(path, entries, {{"format", "pt"}, {"written_by", "bertha"}});
  std::vector<float> widened;
  for (const NamedRows& rows : names) {
    const View values = flat.rows(rows.first_element, rows.elements);
    writer.append(as_floats(values, widened), rows.elements);
  }
  writer.finish();
}

void check_weight_shapes(const std::string& path, const ParamTable& table, const Dims& dims) {
  const SafeTensorsHeader header = read_safetensors_header(path);
  std::string differences;
  int num_differences = 0;
  const auto differ = [&](const std::string& what) {
    if (++num_differences <= 3) differences += (num_differences == 1 ? "" : "; ") + what;
  };
  std::set<std::string> wanted;
  for (const NamedRows& rows : hugging_face_names(table, dims)) {
    wanted.insert(rows.foreign_name);
    const SafeTensor* tensor = find_tensor(header, rows.foreign_name);
    if (tensor == nullptr) {
      differ(rows.foreign_name + " is missing");
    } else if (tensor->shape != rows.foreign_shape) {
      differ(concat(rows.foreign_name, " is ", shape_text(tensor->shape), ", want ",
                    shape_text(rows.foreign_shape)));
    }
  }
  for (const auto& [name, tensor] : header.tensors) {
    if (!wanted.contains(name) && !is_redundant_in_hugging_face(name)) {
      differ(concat(name, " ", shape_text(tensor.shape), " belongs nowhere"));
    }
  }
  if (num_differences > 0) {
    fail(ExitCode::kData, path, ": is a checkpoint of another model: ", differences,
         num_differences > 3 ? concat("; and ", num_differences - 3, " more") : "",
         "; set the keys under model to its shape.");
  }
}

void read_weight_file(const std::string& path, const ParamTable& table, const Dims& dims,
                      float* flat) {
  check_weight_shapes(path, table, dims);
  const SafeTensorsHeader header = read_safetensors_header(path);
  std::fill(flat, flat + table.elements, 0.0f);
  for (const NamedRows& rows : hugging_face_names(table, dims)) {
    const std::vector<float> values =
        read_safetensor(path, header, rows.foreign_name, 0, rows.elements);
    std::copy(values.begin(), values.end(), flat + rows.first_element);
  }
}

}  // namespace bertha

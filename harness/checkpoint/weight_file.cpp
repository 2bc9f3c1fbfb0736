#include "harness/checkpoint/weight_file.h"

#include <vector>

#include "harness/checkpoint/finite.h"
#include "harness/checkpoint/safetensors.h"
#include "kernels/base/half.h"

namespace bertha {
namespace {

/// `floats_of(rows)` returns the elements of a tensor in f32.
template <class FloatsOf>
void write_rows(const std::string& path, const std::vector<NamedRows>& names,
                const FloatsOf& floats_of, DType dtype = DType::kF32) {
  const char* const stored = dtype == DType::kBF16 ? "BF16" : dtype == DType::kF16 ? "F16" : "F32";
  std::vector<SafeTensorsWriter::Entry> entries;
  for (const NamedRows& rows : names) {
    entries.push_back({.name = rows.foreign_name, .shape = rows.foreign_shape, .dtype = stored});
  }
  SafeTensorsWriter writer(path, entries, {{"format", "pt"}, {"written_by", "bertha"}});
  for (const NamedRows& rows : names) {
    const float* floats = floats_of(rows);
    check_finite(ExitCode::kNumeric, path, rows.foreign_name, floats, rows.elements);
    if (dtype == DType::kF32) {
      writer.append(floats, rows.elements);
      continue;
    }
    std::vector<uint16_t> narrow(static_cast<size_t>(rows.elements));
    for (size_t i = 0; i < narrow.size(); ++i) {
      const double value = floats[i];
      narrow[i] = dtype == DType::kBF16 ? to_bfloat16(value).bits : to_half(value).bits;
    }
    writer.append(reinterpret_cast<const char*>(narrow.data()), 2 * rows.elements);
  }
  writer.finish();
}

}  // namespace

const float* as_floats(const View& values, std::vector<float>& storage) {
  if (values.dtype == DType::kF32) return values.as<float>();
  storage.resize(static_cast<size_t>(values.elements()));
  for (size_t i = 0; i < storage.size(); ++i) {
    storage[i] = values.dtype == DType::kF16 ? to_float(values.as<Half>()[i])
                                             : to_float(values.as<BFloat16>()[i]);
  }
  return storage.data();
}

void write_weight_file(const std::string& path, const CheckpointParts& parts) {
  std::vector<NamedRows> names = hugging_face_names(*parts.table, parts.dims);
  if (parts.config->model.padded_vocab_in_softmax) {
    const std::vector<NamedRows> padding = padding_names(*parts.table, parts.dims);
    names.insert(names.end(), padding.begin(), padding.end());
  }

  const View weights = parts.optimizer->weights();
  const Buffer pinned = parts.device->allocate_pinned(weights.bytes());
  parts.device->copy(*parts.stream, pinned.data(), weights.data, weights.bytes());
  parts.stream->wait_on_host();
  const View flat(pinned.data(), weights.dtype, {weights.elements()});
  std::vector<float> widened;
  write_rows(path, names, [&](const NamedRows& rows) {
    return as_floats(flat.rows(rows.first_element, rows.elements), widened);
  });
}

void write_weight_file(const std::string& path, const std::vector<NamedRows>& names,
                       const float* flat, DType dtype) {
  write_rows(
      path, names, [&](const NamedRows& rows) { return flat + rows.first_element; }, dtype);
}

}  // namespace bertha

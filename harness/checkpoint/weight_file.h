#pragma once

#include <string>

#include "harness/checkpoint/checkpoint.h"

namespace bertha {

/// model.safetensors: the weights as the model uses them, in f32, under Hugging Face names.
void write_weight_file(const std::string& path, const CheckpointParts& parts);

/// The same of a flat buffer on the host: f32, f16 or bf16 [table.elements or more].
void write_weight_file(const std::string& path, const ParamTable& table, const Dims& dims,
                       const View& flat);

/// Error(kData) unless the file holds every tensor of the table in its shape, and no others; names
/// the first tensors that differ, with the shape found and wanted.
void check_weight_shapes(const std::string& path, const ParamTable& table, const Dims& dims);

/// Checks shapes and fills the flat f32 buffer [table.elements]; padding rows become zero.
void read_weight_file(const std::string& path, const ParamTable& table, const Dims& dims,
                      float* flat);

}  // namespace bertha

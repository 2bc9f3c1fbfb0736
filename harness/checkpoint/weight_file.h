#pragma once

#include <string>

#include "harness/checkpoint/checkpoint.h"

namespace bertha {

/// model.safetensors: the weights as the model uses them, in f32, under Hugging Face names.
void write_weight_file(const std::string& path, const CheckpointParts& parts);

/// The same of a flat buffer on the host: f32, f16 or bf16 [table.elements or more].
void write_weight_file(const std::string& path, const ParamTable& table, const Dims& dims,
                       const View& flat);

}  // namespace bertha

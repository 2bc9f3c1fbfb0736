#pragma once

#include <string>

#include "harness/checkpoint/checkpoint.h"

namespace bertha {

/// model.safetensors: the weights as the model uses them, in f32, under Hugging Face names, and
/// padding rows of the vocabulary where the model has them in its softmax.
///
/// Errors    Error(kNumeric) naming the tensor that is not finite; Error(kData) (full disk).
void write_weight_file(const std::string& path, const CheckpointParts& parts);

/// The same without padding rows, of a flat buffer on the host: f32, f16 or bf16 [table.elements or
/// more].
void write_weight_file(const std::string& path, const ParamTable& table, const Dims& dims,
                       const View& flat);

}  // namespace bertha

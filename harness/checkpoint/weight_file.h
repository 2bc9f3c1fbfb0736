#pragma once

#include <string>
#include <vector>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/name_map.h"

namespace bertha {

/// model.safetensors: the weights as the model uses them, in f32, under Hugging Face names, and
/// padding rows of the vocabulary where the model has them in its softmax.
///
/// Errors    Error(kNumeric) naming the tensor that is not finite; Error(kData) (full disk).
void write_weight_file(const std::string& path, const CheckpointParts& parts);

/// The named tensors of a flat buffer [table.elements] on the host.
void write_weight_file(const std::string& path, const std::vector<NamedRows>& names,
                       const float* flat, DType dtype = DType::kF32);

/// Elements of a view on the host, f32, f16 or bf16, in f32: where they are, or widened into
/// `storage`.
const float* as_floats(const View& values, std::vector<float>& storage);

}  // namespace bertha

#pragma once

#include <string>
#include <vector>

#include "harness/checkpoint/checkpoint.h"
#include "harness/checkpoint/name_map.h"

namespace bertha {

/// Writes model.safetensors: the weights as the model uses them, in f32, with Hugging Face names,
/// and padding rows of the vocabulary if the model includes them in its softmax.
///
/// Errors    Error(kNumeric) naming the tensor that is not finite; Error(kData) (full disk).
void write_weight_file(const std::string& path, const CheckpointParts& parts);

/// Writes the named tensors of a flat buffer [table.elements] on the host.
void write_weight_file(const std::string& path, const std::vector<NamedRows>& names,
                       const float* flat, DType dtype = DType::kF32);

/// Elements of a host view (f32, f16 or bf16) in f32: in place, or converted into `storage`.
const float* as_floats(const View& values, std::vector<float>& storage);

}  // namespace bertha

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/config.h"
#include "harness/model/dims.h"
#include "kernels/base/view.h"

namespace bertha {

/// The kind of a tensor, by which the decay rules decide, never by name.
enum class ParamClass : uint8_t {
  kMatrix,            // dense weights
  kEmbedding,         // word, position, segment tables
  kBias,              // all biases except kQkvBias
  kQkvBias,           // bias of the fused query-key-value GEMM
  kEmbeddingLnGamma,  // LayerNorm after the embedding
  kAttentionLnGamma,  // LayerNorm after attention
  kOutputLnGamma,     // LayerNorm after the feed-forward part
  kHeadLnGamma,       // LayerNorm of the masked-token head
  kLnBias,
};

/// One tensor of the flat parameter buffer.
struct ParamInfo {
  std::string name;            // "layer.3.attention.qkv.weight"
  std::vector<int64_t> shape;  // row-major, [out, in] for matrices
  ParamClass param_class = ParamClass::kMatrix;
  int64_t layer = -1;  // -1 outside the encoder
  bool decay = true;
  bool has_gradient = true;  // false: no loss depends on it, and the optimizer does not change it
  int64_t norm_parts = 1;    // equal parts of the first axis with separate LAMB norms
  int64_t offset = 0;        // elements from the start of the flat buffer, multiple of 64
  int64_t elements = 0;
};

/// All tensors, in the order of the forward pass, with offsets in one flat buffer.
struct ParamTable {
  std::vector<ParamInfo> params;
  int64_t elements = 0;  // flat buffer without rank padding; gaps between tensors are always zero
  /// First element of the embeddings, of each layer and of the heads: backward finishes gradients
  /// from the last of these parts to the first, which contains the word table. [layers + 2]
  std::vector<int64_t> part_begins;

  const ParamInfo& find(const std::string& name) const;
  /// View of one tensor in a flat buffer of `dtype`.
  View view(const ParamInfo& param, void* flat, DType dtype) const;
};

/// nsp_weight: weight of the next-sentence loss; with 0, pooler and next-sentence head have no
/// gradient.
ParamTable make_param_table(const Dims& dims, DecayRule rule, double nsp_weight = 1);

/// Fills a flat f32 host buffer with the initial weights: normal(0, stddev) for matrices and
/// tables truncated at two deviations, 1 for gammas, 0 for biases and betas, padding rows 0.
/// A pure function of (seed, tensor name, element).
void initialize(const ParamTable& table, const Dims& dims, double stddev, uint64_t seed,
                float* flat);

}  // namespace bertha

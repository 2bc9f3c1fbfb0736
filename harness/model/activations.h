#pragma once

#include <array>
#include <string>
#include <vector>

#include "harness/model/arena.h"
#include "harness/model/batch_rows.h"
#include "harness/model/dims.h"
#include "harness/model/encoder_gemms.h"

namespace bertha {

// To add an activation, add a member here and a line in activations.cpp. T, B, M and K are the rows
// in use, see BatchRows.

/// The tensors that an encoder layer saves for its backward pass. R is T, or in the last layer K if
/// only the needed rows are computed after the attention.
struct LayerActivations {
  View qkv;              // io  [T, 3, A, D]
  View context;          // io  [T, H]     attention output before its projection
  View lse;              // f32 [A, T]
  View attention_mask;   // u8  [T, A, S / 8]  kept probabilities; S = P up to a multiple of 32
  View needed_context;   // io  [K, H]     last layer: needed rows of context
  View needed_x;         // io  [K, H]     last layer: needed rows of its input
  View projection_mask;  // u8  [R, H / 8]     kept elements
  View attention_sum;    // io  [R, H]
  View attention_mean;   // f32 [R]
  View attention_rstd;   // f32 [R]
  View attention_y;      // io  [R, H]     input of the feed-forward part; not stored by fp8 steps
  View ff_pre;           // f32 [R, F]     before GELU; with io f32 only, and without fp8
  View ff_derivative;    // u8  [R, F]     instead, GELU's derivative as Quantize stores it
  View ff_mid;           // io  [R, F]     after GELU
  View ff_mask;          // u8  [R, H / 8]
  View ff_sum;           // io  [R, H]
  View ff_mean;          // f32 [R]
  View ff_rstd;          // f32 [R]
  View y;                // io  [R, H]     output of the layer; stored by fp8 steps if read in io
  // With fp8: inputs of the GEMMs, e4m3 [inputs, rows]. That of kFfOut is in the memory of ff_mid:
  // a step uses one or the other.
  std::array<View, kEncoderGemms> fp8_inputs;
};

struct EmbeddingActivations {
  View sum;   // io  [T, H]
  View mean;  // f32 [T]
  View rstd;  // f32 [T]
  View mask;  // u8  [T, H / 8]
  View y;     // io  [T, H]
};

struct HeadActivations {
  View hidden;         // io  [K, H]  needed rows of the last layer's output if it computes all
  View pooled;         // io  [B, H]
  View nsp_logits;     // io  [B, 2]
  View transform_pre;  // io  [M, H]
  View transform_mid;  // io  [M, H]
  View ln_mean;        // f32 [M]
  View ln_rstd;        // f32 [M]
  View ln_y;           // io  [M, H]
  View mlm_logits;     // io  [M, V]
  View nsp_scale;      // f32 [1]     gradient scale of each loss
  View mlm_scale;      // f32 [1]
  View denominators;   // i64 [2]     masked tokens, sequences
  View fp8_input;      // e4m3 [H, M] with fp8: ln_y
};

/// Scratch memory of forward and backward.
struct Scratch {
  View projected;         // io [T, H]     sub-layer output before its bias
  View d_hidden;          // io [T, H]     gradient along the residual stream
  View d_branch;          // io [T, H]     gradient of a sub-layer's output
  View d_context;         // io [T, H]
  View d_qkv;             // io [T, 3, A, D]
  View d_ff;              // io [T, F]     with fp8, in forward: before GELU
  View d_needed;          // io [K, H]     gradient of the rows that the heads read
  View d_needed_context;  // io [K, H]
  View d_transform;       // io [M, H]
  View d_pooled;          // io [B, H]
  // With fp8: inputs and gradients of GEMMs by rows (separately for those between the feed-forward
  // block's two GEMMs), and a transposed gradient. Bytes of the largest matrix.
  View fp8_rows;                 // u8 [T * 3H, or M * V]
  View fp8_inner_rows;           // u8 [T * F]
  View fp8_gradient_transposed;  // u8 [T * max(F, 3H), or M * V]
};

struct Activations {
  EmbeddingActivations embedding;
  std::vector<LayerActivations> layers;
  HeadActivations heads;
  Scratch scratch;
};

/// A tensor and its display name.
struct NamedView {
  std::string name;
  View values;
};

/// The activations of a micro-batch of `live` rows after a training forward pass, in the order of
/// their computation: all tensors that GEMMs and LayerNorms read or write, without statistics,
/// masks and what fp8 steps do not store in io; at the end the gradients of the logits, which
/// replace the logits.
std::vector<NamedView> named_activations(const Activations& activations, const BatchRows& live);

/// Allocates buffers for the rows of `capacity` and returns views of their first `rows`. Allocating
/// again from the start of the same memory returns views of the same buffers with other rows.
/// `fp8`: includes the buffers that fp8 GEMMs need.
Activations allocate_activations(Arena& arena, const Dims& dims, const BatchRows& capacity,
                                 const BatchRows& rows, DType io, bool fp8);

}  // namespace bertha

#pragma once

#include "kernels/ops/linear.h"

namespace bertha {

/// The GEMMs of a linear layer y[T,N] = x[T,K] w[N,K]^T.
enum class GemmKind : uint8_t { kForward, kDataGradient, kWeightGradient };

/// One GEMM of the operations of linear.h.
struct GemmShape {
  GemmKind kind;
  DType dtype;                                // f32, f16 or bf16
  DType a_dtype = dtype;                      // weight, or x in a weight gradient; may be fp8
  DType b_dtype = dtype;                      // x, or dy in gradients; fp8 where a_dtype is
  int64_t rows;                               // T
  int64_t inputs;                             // K
  int64_t outputs;                            // N
  bool bias = false;                          // forward only
  Activation activation = Activation::kNone;  // forward, data gradient
  Accumulate accumulate = Accumulate::kNo;    // gradients
  bool fast_accumulate = false;               // weight gradient of fp8: CUDA's fp8_fast_wgrad
};

/// What the choice of kernels for a model's GEMMs with a GELU depends on: those of its feed-forward
/// blocks, and of the transform [hidden, hidden] before the decoder.
struct FeedForward {
  DType io;
  Activation gelu;
  int64_t hidden;
  int64_t feed_forward;
  bool fp8 = false;  // the blocks' GEMMs multiply fp8, and round the GELU and its gradient to it
};

}  // namespace bertha

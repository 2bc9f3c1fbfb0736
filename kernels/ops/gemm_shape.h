#pragma once

#include "kernels/ops/linear.h"

namespace bertha {

/// The products of a linear layer y[T,N] = x[T,K] w[N,K]^T.
enum class GemmProduct : uint8_t { kForward, kDataGradient, kWeightGradient };

/// One product as the operations of linear.h ask for it.
struct GemmShape {
  GemmProduct product;
  DType dtype;                                // f32, f16 or bf16
  int64_t rows;                               // T
  int64_t inputs;                             // K
  int64_t outputs;                            // N
  bool bias = false;                          // forward only
  Activation activation = Activation::kNone;  // forward, data gradient
  Accumulate accumulate = Accumulate::kNo;    // gradients
};

/// What decides which kernels take a model's products with a GELU: those of its feed-forward
/// blocks, and of the transform [hidden, hidden] before the decoder.
struct FeedForward {
  DType io;
  Activation gelu;
  int64_t hidden;
  int64_t feed_forward;
};

/// What tuning of one product found.
struct GemmTuning {
  int candidates = 0;     // 0: the library has no algorithm for this shape
  int wrong = 0;          // candidates that failed, or computed something else
  double first_us = 0.0;  // the library's first choice
  double tuned_us = 0.0;  // the one kept
};

}  // namespace bertha

#pragma once

#include "kernels/base/arguments.h"

namespace bertha {

/// Applied to x * w^T + bias. kGeluTanh is the tanh form:
/// 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))); kGelu is the exact one:
/// 0.5 z (1 + erf(z / sqrt(2))).
enum class Activation : uint8_t { kNone, kGeluTanh, kTanh, kGelu };

/// Whether backward needs the values before the activation; kTanh needs those after it.
constexpr bool keeps_pre_activation(Activation activation) {
  return activation == Activation::kGeluTanh || activation == Activation::kGelu;
}

// GEMMs of fp8. The two matrices that are multiplied may both be fp8 (ops/quantize.h): e4m3, and at
// most one of them e5m2. An fp8 matrix q stands for q * inverse_scale, a number in device memory.
// The summed dimension is contiguous in both, as tensor cores want it, so that LinearBwdData takes
// the weight transposed, and LinearBwdWeight dy and x. All other views stay io, the dtype of the
// output.
//
// Exact     products of fp8 are exact in f32. On GPUs sums of K or N products keep 14 bits below
//           the largest product; sums of T products pass into f32 sums again and again, or with
//           CudaOptions::fp8_fast_wgrad do not. With f32_sums all pass into f32 sums.
// Needs     CUDA: T, K and N are multiples of 16, and matrices and inverse scales 16-byte aligned.

/// y = activation(x * w^T + bias).
///
/// Letters   T = rows, K = inputs, N = outputs.
/// Dtypes    io is one of f32, f16, bf16; GEMMs accumulate in f32. x and weight may be fp8.
/// Writes    overwrites y and, for both GELUs, either pre_activation or derivative: the one with
///           data. For kNone and kTanh give both no data; backward of kTanh needs y only.
/// Needs     T == 0 is a no-op. bias without data means no bias.
/// Exact     with derivative a GPU may compute a GELU of 16 bits in f16: see Quantize.
struct LinearFwd {
  static constexpr const char* kName = "linear_fwd";
  View x;                // io or fp8 [T, K]
  View weight;           // io or fp8 [N, K]
  View bias;             // io [N]
  View y;                // io [T, N]  out
  View pre_activation;   // io [T, N]  out for GELUs: x * w^T + bias, saved for backward
  View derivative = {};  // u8 [T, N]  out for GELUs: its derivative as Quantize stores it
  Activation activation = Activation::kNone;
  View x_inverse_scale = {};       // f32 [1]  with fp8 only
  View weight_inverse_scale = {};  // f32 [1]  the same
};

/// dx (+)= (dy * w) elementwise-times activation'(saved) of the layer BELOW: fuses the gradient of
/// the activation that produced this layer's input, and the bias gradient of that layer:
/// dbias_below (+)= column sums of dx. With kNone and `derivative` dx is multiplied by that, as
/// LinearFwd stored it.
///
/// Writes    dx as `accumulate` says; kYes adds into a residual gradient, with kNone and without
///           derivative only.
///           dbias_below as `accumulate_dbias` says; without data it is left out. It sums what dx
///           holds in the end, rounded to io.
struct LinearBwdData {
  static constexpr const char* kName = "linear_bwd_data";
  View dy;      // io or fp8 [T, N]
  View weight;  // io [N, K], or fp8 [K, N]
  View saved;   // io [T, K]  GELUs: the pre-activation below; kTanh: its output; kNone: no data
  View dx;      // io [T, K]  out
  View derivative = {};   // u8 [T, K]  of the layer below; with kNone only, optional
  View dbias_below = {};  // io [K]     out
  Activation activation = Activation::kNone;
  Accumulate accumulate = Accumulate::kNo;
  Accumulate accumulate_dbias = Accumulate::kNo;
  View dy_inverse_scale = {};      // f32 [1]  with fp8 only
  View weight_inverse_scale = {};  // f32 [1]  the same
  bool f32_sums = false;           // matters with fp8 only
};

/// dweight (+)= dy^T * x, dbias (+)= column sums of dy.
///
/// Writes    both as `accumulate` says; dbias without data is left out, as it must be with fp8: a
///           bias gradient is a sum of what was there before rounding to fp8.
struct LinearBwdWeight {
  static constexpr const char* kName = "linear_bwd_weight";
  View dy;       // io [T, N], or fp8 [N, T]
  View x;        // io [T, K], or fp8 [K, T]
  View dweight;  // io [N, K]  out
  View dbias;    // io [N]     out
  Accumulate accumulate = Accumulate::kNo;
  View dy_inverse_scale = {};  // f32 [1]  with fp8 only
  View x_inverse_scale = {};   // f32 [1]  the same
  bool f32_sums = false;       // matters with fp8 only
};

/// dx = dy elementwise-times activation'(saved), if no GEMM follows to fuse it into.
/// dx may be dy.
struct ActivationBwd {
  static constexpr const char* kName = "activation_bwd";
  View dy;     // io [T, N]
  View saved;  // io [T, N]  GELUs: pre-activation; kTanh: output
  View dx;     // io [T, N]  out
  Activation activation = Activation::kGeluTanh;
};

/// The facts that determine the kernels of the GEMMs with a GELU in a model's feed-forward blocks.
struct FeedForward {
  DType io;
  int64_t hidden;
  int64_t feed_forward;
  bool fp8 = false;  // the blocks' GEMMs multiply fp8, and round the GELU and its gradient to it
};

void validate(const LinearFwd& args);
void validate(const LinearBwdData& args);
void validate(const LinearBwdWeight& args);
void validate(const ActivationBwd& args);

}  // namespace bertha

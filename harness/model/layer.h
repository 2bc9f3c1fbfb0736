#pragma once

#include "harness/model/activations.h"
#include "harness/model/device_batch.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/residual_ln.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// Weights of one encoder layer, or their gradients, with the same names.
struct LayerParams {
  View qkv_weight;          // io [3H, H]
  View qkv_bias;            // io [3H]
  View projection_weight;   // io [H, H]
  View projection_bias;     // io [H]
  View attention_ln_gamma;  // io [H]
  View attention_ln_beta;   // io [H]
  View ff_in_weight;        // io [F, H]
  View ff_in_bias;          // io [F]
  View ff_out_weight;       // io [H, F]
  View ff_out_bias;         // io [H]
  View ff_ln_gamma;         // io [H]
  View ff_ln_beta;          // io [H]
};

/// Dropout at the three sites of a layer, and the constants of its operations.
struct LayerSettings {
  Dropout attention_dropout;  // on probabilities
  Dropout projection_dropout;
  Dropout ff_dropout;
  float layer_norm_epsilon = 1e-12f;
  Activation gelu = Activation::kGeluTanh;
  int64_t max_seq_tokens = 512;
};

/// Operands of one layer in one call; views have only the rows in use.
struct LayerCall {
  const LayerParams* weights = nullptr;
  const LayerParams* gradients = nullptr;  // backward only
  const LayerActivations* saved = nullptr;
  const Scratch* scratch = nullptr;
  const DeviceBatch* batch = nullptr;
  View x;           // io [T, H]  input of the layer
  Fp8Result x_fp8;  // x rounded by the layer before, if it exists
  Fp8Result y_fp8;  // where the next layer reads saved.y rounded, if it does
  // With data: the layer before did not store its output. x is the sum that its last LayerNorm,
  // this one, normalizes, and GEMMs read x_fp8. Not with needed_rows.
  ResidualNorm x_norm;
  bool is_y_needed = true;  // false, with y_fp8: saved.y is not stored
  View needed_rows;  // i32 [K]  the only rows after the attention, -1 = padding; no data: all
  GemmMode gemm_mode = GemmMode::kIo;
  Fp8Layer fp8;  // for modes other than kIo
  LayerSettings settings;
  Accumulate accumulate = Accumulate::kYes;  // for gradients of weights
};

/// The LayerNorm at the end of a layer.
ResidualNorm output_norm(const LayerParams& weights, const LayerActivations& saved);

/// saved.y = the layer's output for x, or for needed_rows only, if is_y_needed; also rounded to
/// y_fp8.
void layer_forward(Ops& ops, const LayerCall& call);

/// On entry scratch.d_hidden, or with needed_rows scratch.d_needed, contains the gradient of
/// saved.y; on return d_hidden contains the gradient of x. Gradients of weights are written, or
/// with call.accumulate added.
void layer_backward(Ops& ops, const LayerCall& call);

}  // namespace bertha

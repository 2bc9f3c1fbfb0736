#pragma once

#include "harness/model/activations.h"
#include "harness/model/device_batch.h"
#include "harness/model/encoder_gemms.h"
#include "kernels/ops/linear.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// Weights of pooler, masked-token head and sentence head, or their gradients.
struct HeadParams {
  View pooler_weight;     // io [H, H]
  View pooler_bias;       // io [H]
  View transform_weight;  // io [H, H]
  View transform_bias;    // io [H]
  View ln_gamma;          // io [H]
  View ln_beta;           // io [H]
  View word_table;        // io [V, H]  the decoder is tied to it
  View output_bias;       // io [V]
  View nsp_weight;        // io [2, H]
  View nsp_bias;          // io [2]
};

/// Views into the device's LossStats.
struct LossSums {
  View mlm_loss_sum;  // f64 [1]
  View nsp_loss_sum;  // f64 [1]
  View mlm_correct;   // i64 [1]
  View mlm_count;     // i64 [1]
  View nsp_correct;   // i64 [1]
  View nsp_count;     // i64 [1]
};

struct HeadCall {
  const HeadParams* weights = nullptr;
  const HeadParams* gradients = nullptr;  // backward only
  const HeadActivations* saved = nullptr;
  const Scratch* scratch = nullptr;
  const DeviceBatch* batch = nullptr;
  View hidden;  // io [K, H]  output of the encoder at masked tokens [M], then at first tokens [B]
  float layer_norm_epsilon = 1e-12f;
  Activation gelu = Activation::kGeluTanh;
  int64_t classes = 0;                       // columns of the logits in the softmax
  Accumulate accumulate = Accumulate::kYes;  // for gradients of weights
  GemmMode gemm_mode = GemmMode::kIo;        // of the decoder
  Fp8Layer fp8 = {};                         // for modes other than kIo
};

/// Logits of both heads.
void heads_forward(Ops& ops, const HeadCall& call);

/// Losses and accuracy counts; with write_gradient the logits are replaced by their gradients,
/// times the scales in saved.mlm_scale and saved.nsp_scale.
void heads_loss(Ops& ops, const HeadCall& call, const LossSums& sums, bool write_gradient);

/// Writes the gradient of hidden to scratch.d_needed. Gradients of weights are written, or with
/// call.accumulate added.
void heads_backward(Ops& ops, const HeadCall& call);

}  // namespace bertha

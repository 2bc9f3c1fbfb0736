#include "harness/model/heads.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/linear.h"
#include "kernels/rows/ops/layer_norm.h"

namespace bertha {
namespace {

const View kNoView;

/// The rows of masked tokens, [M, H], in `rows`, io [K, H].
View masked_rows(const HeadCall& call, const View& rows) {
  return rows.rows(0, call.batch->masked_labels.extent(0));
}

/// The rows of first tokens, [B, H], in `rows`, io [K, H].
View first_rows(const HeadCall& call, const View& rows) {
  return rows.rows(call.batch->masked_labels.extent(0), call.batch->next_sentence_labels.extent(0));
}

void mlm_backward(Ops& ops, const HeadCall& call) {
  const HeadParams& w = *call.weights;
  const HeadParams& g = *call.gradients;
  const HeadActivations& a = *call.saved;
  const Scratch& s = *call.scratch;

  // f32 sums: the gradients of other words are often below 2^-14 of the label's, and there are many
  // of them.
  EncoderGemms(ops, call.gemm_mode, &call.fp8)
      .backward(EncoderGemm::kDecoder,
                {.dy = a.mlm_logits,
                 .x = a.ln_y,
                 .dweight = g.word_table,
                 .dbias = g.output_bias,
                 .accumulate = call.accumulate,
                 .f32_sums = true},
                {.dy = a.mlm_logits,
                 .weight = w.word_table,
                 .saved = kNoView,
                 .dx = s.d_transform,
                 .f32_sums = true});
  ops.run(LayerNormBwd{.dy = s.d_transform,
                       .x = a.transform_mid,
                       .mean = a.ln_mean,
                       .rstd = a.ln_rstd,
                       .gamma = w.ln_gamma,
                       .dx = s.d_transform,
                       .dgamma = g.ln_gamma,
                       .dbeta = g.ln_beta,
                       .accumulate = call.accumulate});
  ops.run(ActivationBwd{
      .dy = s.d_transform, .saved = a.transform_pre, .dx = s.d_transform, .activation = call.gelu});
  ops.run(LinearBwdWeight{.dy = s.d_transform,
                          .x = masked_rows(call, call.hidden),
                          .dweight = g.transform_weight,
                          .dbias = g.transform_bias,
                          .accumulate = call.accumulate});
  ops.run(LinearBwdData{.dy = s.d_transform,
                        .weight = w.transform_weight,
                        .saved = kNoView,
                        .dx = masked_rows(call, s.d_needed)});
}

void nsp_backward(Ops& ops, const HeadCall& call) {
  const HeadParams& w = *call.weights;
  const HeadParams& g = *call.gradients;
  const HeadActivations& a = *call.saved;
  const Scratch& s = *call.scratch;

  ops.run(LinearBwdWeight{.dy = a.nsp_logits,
                          .x = a.pooled,
                          .dweight = g.nsp_weight,
                          .dbias = g.nsp_bias,
                          .accumulate = call.accumulate});
  ops.run(LinearBwdData{.dy = a.nsp_logits,
                        .weight = w.nsp_weight,
                        .saved = a.pooled,
                        .dx = s.d_pooled,
                        .activation = Activation::kTanh});
  ops.run(LinearBwdWeight{.dy = s.d_pooled,
                          .x = first_rows(call, call.hidden),
                          .dweight = g.pooler_weight,
                          .dbias = g.pooler_bias,
                          .accumulate = call.accumulate});
  ops.run(LinearBwdData{.dy = s.d_pooled,
                        .weight = w.pooler_weight,
                        .saved = kNoView,
                        .dx = first_rows(call, s.d_needed)});
}

}  // namespace

void heads_forward(Ops& ops, const HeadCall& call) {
  const HeadParams& w = *call.weights;
  const HeadActivations& a = *call.saved;

  ops.run(LinearFwd{.x = first_rows(call, call.hidden),
                    .weight = w.pooler_weight,
                    .bias = w.pooler_bias,
                    .y = a.pooled,
                    .pre_activation = kNoView,
                    .activation = Activation::kTanh});
  ops.run(LinearFwd{.x = a.pooled,
                    .weight = w.nsp_weight,
                    .bias = w.nsp_bias,
                    .y = a.nsp_logits,
                    .pre_activation = kNoView});

  ops.run(LinearFwd{.x = masked_rows(call, call.hidden),
                    .weight = w.transform_weight,
                    .bias = w.transform_bias,
                    .y = a.transform_mid,
                    .pre_activation = a.transform_pre,
                    .activation = call.gelu});
  ops.run(LayerNormFwd{.x = a.transform_mid,
                       .gamma = w.ln_gamma,
                       .beta = w.ln_beta,
                       .y = a.ln_y,
                       .mean = a.ln_mean,
                       .rstd = a.ln_rstd,
                       .epsilon = call.layer_norm_epsilon});
  EncoderGemms(ops, call.gemm_mode, &call.fp8)
      .forward(EncoderGemm::kDecoder, {.x = a.ln_y,
                                       .weight = w.word_table,
                                       .bias = w.output_bias,
                                       .y = a.mlm_logits,
                                       .pre_activation = kNoView});
}

void heads_loss(Ops& ops, const HeadCall& call, const LossSums& sums, bool write_gradient) {
  const HeadActivations& a = *call.saved;
  ops.run(CrossEntropy{.logits = a.mlm_logits,
                       .labels = call.batch->masked_labels,
                       .gradient_scale = a.mlm_scale,
                       .loss_sum = sums.mlm_loss_sum,
                       .correct = sums.mlm_correct,
                       .rows_counted = sums.mlm_count,
                       .classes = call.classes,
                       .write_gradient = write_gradient});
  ops.run(CrossEntropy{.logits = a.nsp_logits,
                       .labels = call.batch->next_sentence_labels,
                       .gradient_scale = a.nsp_scale,
                       .loss_sum = sums.nsp_loss_sum,
                       .correct = sums.nsp_correct,
                       .rows_counted = sums.nsp_count,
                       .classes = 2,
                       .write_gradient = write_gradient});
}

void heads_backward(Ops& ops, const HeadCall& call) {
  const View& d_needed = call.scratch->d_needed;
  const int64_t written =
      call.batch->masked_labels.extent(0) + call.batch->next_sentence_labels.extent(0);
  ops.run(Fill{.values = d_needed.rows(written, d_needed.extent(0) - written)});
  mlm_backward(ops, call);
  nsp_backward(ops, call);
}

}  // namespace bertha

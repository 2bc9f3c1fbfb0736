#include "harness/model/heads.h"

namespace bertha {
namespace {

const View kNoView;

void mlm_backward(Ops& ops, const HeadCall& call) {
  const HeadParams& w = *call.weights;
  const HeadParams& g = *call.gradients;
  const HeadActivations& a = *call.saved;
  const Scratch& s = *call.scratch;

  ops.linear_bwd_weight({.dy = a.mlm_logits,
                         .x = a.ln_y,
                         .dweight = g.word_table,
                         .dbias = g.output_bias,
                         .accumulate = call.accumulate});
  ops.linear_bwd_data(
      {.dy = a.mlm_logits, .weight = w.word_table, .saved = kNoView, .dx = s.d_transform});
  ops.layer_norm_bwd({.dy = s.d_transform,
                      .x = a.transform_mid,
                      .mean = a.ln_mean,
                      .rstd = a.ln_rstd,
                      .gamma = w.ln_gamma,
                      .dx = s.d_transform,
                      .dgamma = g.ln_gamma,
                      .dbeta = g.ln_beta,
                      .accumulate = call.accumulate});
  ops.activation_bwd({.dy = s.d_transform,
                      .saved = a.transform_pre,
                      .dx = s.d_transform,
                      .activation = call.gelu});
  ops.linear_bwd_weight({.dy = s.d_transform,
                         .x = a.picked,
                         .dweight = g.transform_weight,
                         .dbias = g.transform_bias,
                         .accumulate = call.accumulate});
  ops.linear_bwd_data(
      {.dy = s.d_transform, .weight = w.transform_weight, .saved = kNoView, .dx = s.d_picked});
  ops.scatter_add_rows(
      {.rows = s.d_picked, .indices = call.batch->masked_positions, .target = s.d_hidden});
}

void nsp_backward(Ops& ops, const HeadCall& call) {
  const HeadParams& w = *call.weights;
  const HeadParams& g = *call.gradients;
  const HeadActivations& a = *call.saved;
  const Scratch& s = *call.scratch;

  ops.linear_bwd_weight({.dy = a.nsp_logits,
                         .x = a.pooled,
                         .dweight = g.nsp_weight,
                         .dbias = g.nsp_bias,
                         .accumulate = call.accumulate});
  ops.linear_bwd_data({.dy = a.nsp_logits,
                       .weight = w.nsp_weight,
                       .saved = a.pooled,
                       .dx = s.d_pooled,
                       .activation = Activation::kTanh});
  ops.linear_bwd_weight({.dy = s.d_pooled,
                         .x = a.first,
                         .dweight = g.pooler_weight,
                         .dbias = g.pooler_bias,
                         .accumulate = call.accumulate});
  ops.linear_bwd_data(
      {.dy = s.d_pooled, .weight = w.pooler_weight, .saved = kNoView, .dx = s.d_first});
  ops.scatter_add_rows(
      {.rows = s.d_first, .indices = call.batch->first_tokens, .target = s.d_hidden});
}

}  // namespace

void heads_forward(Ops& ops, const HeadCall& call) {
  const HeadParams& w = *call.weights;
  const HeadActivations& a = *call.saved;

  ops.gather_rows({.source = call.hidden, .indices = call.batch->first_tokens, .picked = a.first});
  ops.linear_fwd({.x = a.first,
                  .weight = w.pooler_weight,
                  .bias = w.pooler_bias,
                  .y = a.pooled,
                  .pre_activation = kNoView,
                  .activation = Activation::kTanh});
  ops.linear_fwd({.x = a.pooled,
                  .weight = w.nsp_weight,
                  .bias = w.nsp_bias,
                  .y = a.nsp_logits,
                  .pre_activation = kNoView});

  ops.gather_rows(
      {.source = call.hidden, .indices = call.batch->masked_positions, .picked = a.picked});
  ops.linear_fwd({.x = a.picked,
                  .weight = w.transform_weight,
                  .bias = w.transform_bias,
                  .y = a.transform_mid,
                  .pre_activation = a.transform_pre,
                  .activation = call.gelu});
  ops.layer_norm_fwd({.x = a.transform_mid,
                      .gamma = w.ln_gamma,
                      .beta = w.ln_beta,
                      .y = a.ln_y,
                      .mean = a.ln_mean,
                      .rstd = a.ln_rstd,
                      .epsilon = call.layer_norm_epsilon});
  ops.linear_fwd({.x = a.ln_y,
                  .weight = w.word_table,
                  .bias = w.output_bias,
                  .y = a.mlm_logits,
                  .pre_activation = kNoView});
}

void heads_loss(Ops& ops, const HeadCall& call, const LossSums& sums, bool write_gradient) {
  const HeadActivations& a = *call.saved;
  ops.cross_entropy({.logits = a.mlm_logits,
                     .labels = call.batch->masked_labels,
                     .gradient_scale = a.mlm_scale,
                     .loss_sum = sums.mlm_loss_sum,
                     .correct = sums.mlm_correct,
                     .rows_counted = sums.mlm_count,
                     .classes = call.classes,
                     .write_gradient = write_gradient});
  ops.cross_entropy({.logits = a.nsp_logits,
                     .labels = call.batch->next_sentence_labels,
                     .gradient_scale = a.nsp_scale,
                     .loss_sum = sums.nsp_loss_sum,
                     .correct = sums.nsp_correct,
                     .rows_counted = sums.nsp_count,
                     .classes = 2,
                     .write_gradient = write_gradient});
}

void heads_backward(Ops& ops, const HeadCall& call) {
  ops.fill({.values = call.scratch->d_hidden});
  mlm_backward(ops, call);
  nsp_backward(ops, call);
}

}  // namespace bertha

#include "harness/model/layer.h"

#include <cmath>

#include "kernels/ops/attention.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/gather_scatter.h"
#include "kernels/ops/residual_ln.h"

namespace bertha {
namespace {

const View kNoView;

float attention_scale(const View& qkv) {
  return 1.0f / std::sqrt(static_cast<float>(qkv.extent(3)));
}

View as_rows(const View& qkv) {
  return qkv.reshaped({qkv.extent(0), qkv.extent(1) * qkv.extent(2) * qkv.extent(3)});
}

View as_heads(const View& rows, const View& qkv) {
  return rows.reshaped({qkv.extent(0), qkv.extent(2), qkv.extent(3)});
}

/// Operands of the row-wise operations after the attention: all rows, or only the needed ones.
struct RowPart {
  explicit RowPart(const LayerCall& call)
      : is_needed_only(call.needed_rows.has_data()),
        x(is_needed_only ? call.saved->needed_x : call.x),
        context(is_needed_only ? call.saved->needed_context : call.saved->context),
        d_out(is_needed_only ? call.scratch->d_needed : call.scratch->d_hidden),
        d_context(is_needed_only ? call.scratch->d_needed_context : call.scratch->d_context),
        projected(call.scratch->projected.rows(0, x.extent(0))),
        d_branch(call.scratch->d_branch.rows(0, x.extent(0))),
        d_ff(call.scratch->d_ff.rows(0, x.extent(0))),
        fp8(call.fp8) {
    if (is_needed_only) fp8.live_tokens = View();  // padding rows are zero
  }

  bool is_needed_only;
  View x;          // io [R, H]  rows of the layer's input
  View context;    // io [R, H]
  View d_out;      // io [R, H]  gradient of the output, then of x along the residual
  View d_context;  // io [R, H]
  View projected;  // io [R, H]
  View d_branch;   // io [R, H]
  View d_ff;       // io [R, F]
  Fp8Layer fp8;
};

}  // namespace

ResidualNorm output_norm(const LayerParams& weights, const LayerActivations& saved) {
  return {.mean = saved.ff_mean,
          .rstd = saved.ff_rstd,
          .gamma = weights.ff_ln_gamma,
          .beta = weights.ff_ln_beta};
}

void layer_forward(Ops& ops, const LayerCall& call) {
  const LayerParams& w = *call.weights;
  const LayerActivations& a = *call.saved;
  const RowPart rows(call);
  const EncoderGemms attention_gemms(ops, call.gemm_mode, &call.fp8);
  const EncoderGemms gemms(ops, call.gemm_mode, &rows.fp8);

  attention_gemms.forward(EncoderGemm::kQkv,
                          {.x = call.x,
                           .weight = w.qkv_weight,
                           .bias = w.qkv_bias,
                           .y = as_rows(a.qkv),
                           .pre_activation = kNoView},
                          call.x_fp8);
  ops.run(AttentionFwd{.qkv = a.qkv,
                       .cu_seqlens = call.batch->cu_seqlens,
                       .out = as_heads(a.context, a.qkv),
                       .lse = a.lse,
                       .mask = a.attention_mask,
                       .groups = call.batch->groups,
                       .dropout = call.settings.attention_dropout,
                       .max_seq_tokens = call.settings.max_seq_tokens,
                       .scale = attention_scale(a.qkv)});
  if (rows.is_needed_only) {
    ops.run(GatherRows{.source = a.context, .indices = call.needed_rows, .picked = rows.context});
    ops.run(GatherRows{.source = call.x, .indices = call.needed_rows, .picked = rows.x});
  }
  gemms.forward(EncoderGemm::kProjection, {.x = rows.context,
                                           .weight = w.projection_weight,
                                           .bias = kNoView,
                                           .y = rows.projected,
                                           .pre_activation = kNoView});
  const Fp8Result ff_input = gemms.input_result(EncoderGemm::kFfIn);
  const bool fp8 = reads_fp8(call.gemm_mode);
  ops.run(ResidualLnFwd{.x = rows.projected,
                        .bias = w.projection_bias,
                        .residual = rows.x,
                        .gamma = w.attention_ln_gamma,
                        .beta = w.attention_ln_beta,
                        .sum = a.attention_sum,
                        .y = a.attention_y,
                        .mean = a.attention_mean,
                        .rstd = a.attention_rstd,
                        .mask = a.projection_mask,
                        .dropout = call.settings.projection_dropout,
                        .dropout_rows = call.needed_rows,
                        .epsilon = call.settings.layer_norm_epsilon,
                        .y_fp8 = ff_input,
                        .residual_norm = call.x_norm,
                        .is_y_needed = !fp8});

  gemms.feed_forward({.x = a.attention_y,
                      .weight = w.ff_in_weight,
                      .bias = w.ff_in_bias,
                      .y = a.ff_mid,
                      .pre_activation = a.ff_pre,
                      .derivative = a.ff_derivative,
                      .activation = call.settings.gelu},
                     {.x = a.ff_mid,
                      .weight = w.ff_out_weight,
                      .bias = kNoView,
                      .y = rows.projected,
                      .pre_activation = kNoView},
                     ff_input, rows.d_ff);
  ops.run(ResidualLnFwd{.x = rows.projected,
                        .bias = w.ff_out_bias,
                        .residual = fp8 ? a.attention_sum : a.attention_y,
                        .gamma = w.ff_ln_gamma,
                        .beta = w.ff_ln_beta,
                        .sum = a.ff_sum,
                        .y = a.y,
                        .mean = a.ff_mean,
                        .rstd = a.ff_rstd,
                        .mask = a.ff_mask,
                        .dropout = call.settings.ff_dropout,
                        .dropout_rows = call.needed_rows,
                        .epsilon = call.settings.layer_norm_epsilon,
                        .y_fp8 = call.y_fp8,
                        .residual_norm = fp8 ? ResidualNorm{.mean = a.attention_mean,
                                                            .rstd = a.attention_rstd,
                                                            .gamma = w.attention_ln_gamma,
                                                            .beta = w.attention_ln_beta}
                                             : ResidualNorm{},
                        .is_y_needed = call.is_y_needed});
}

namespace {

// The gradient flows around a block and into it: ResidualLnBwd writes the former to d_out and the
// latter to d_branch; the block's last data gradient is added to d_out.

void feed_forward_backward(Ops& ops, const EncoderGemms& gemms, const RowPart& rows,
                           const LayerCall& call) {
  const LayerParams& w = *call.weights;
  const LayerParams& g = *call.gradients;
  const LayerActivations& a = *call.saved;

  const Activation below = a.ff_pre.has_data() ? call.settings.gelu : Activation::kNone;
  const Fp8Result d_branch = gemms.gradient_result(EncoderGemm::kFfOut);
  ops.run(ResidualLnBwd{.dy = rows.d_out,
                        .sum = a.ff_sum,
                        .mean = a.ff_mean,
                        .rstd = a.ff_rstd,
                        .mask = a.ff_mask,
                        .gamma = w.ff_ln_gamma,
                        .dresidual = rows.d_out,
                        .dx = rows.d_branch,
                        .dgamma = g.ff_ln_gamma,
                        .dbeta = g.ff_ln_beta,
                        .dbias = g.ff_out_bias,
                        .dropout = call.settings.ff_dropout,
                        .accumulate = call.accumulate,
                        .dx_fp8 = d_branch});
  gemms.feed_forward_backward({.dy = rows.d_branch,
                               .x = a.ff_mid,
                               .dweight = g.ff_out_weight,
                               .dbias = kNoView,
                               .accumulate = call.accumulate},
                              {.dy = rows.d_branch,
                               .weight = w.ff_out_weight,
                               .saved = a.ff_pre,
                               .dx = rows.d_ff,
                               .derivative = a.ff_derivative,
                               .dbias_below = g.ff_in_bias,
                               .activation = below,
                               .accumulate_dbias = call.accumulate},
                              {.dy = rows.d_ff,
                               .x = a.attention_y,
                               .dweight = g.ff_in_weight,
                               .dbias = kNoView,
                               .accumulate = call.accumulate},
                              {.dy = rows.d_ff,
                               .weight = w.ff_in_weight,
                               .saved = kNoView,
                               .dx = rows.d_out,
                               .accumulate = Accumulate::kYes},
                              d_branch);
}

void projection_backward(Ops& ops, const EncoderGemms& gemms, const RowPart& rows,
                         const LayerCall& call) {
  const LayerParams& w = *call.weights;
  const LayerParams& g = *call.gradients;
  const LayerActivations& a = *call.saved;

  const Fp8Result d_branch = gemms.gradient_result(EncoderGemm::kProjection);
  ops.run(ResidualLnBwd{.dy = rows.d_out,
                        .sum = a.attention_sum,
                        .mean = a.attention_mean,
                        .rstd = a.attention_rstd,
                        .mask = a.projection_mask,
                        .gamma = w.attention_ln_gamma,
                        .dresidual = rows.d_out,
                        .dx = rows.d_branch,
                        .dgamma = g.attention_ln_gamma,
                        .dbeta = g.attention_ln_beta,
                        .dbias = g.projection_bias,
                        .dropout = call.settings.projection_dropout,
                        .accumulate = call.accumulate,
                        .dx_fp8 = d_branch});
  gemms.backward(
      EncoderGemm::kProjection,
      {.dy = rows.d_branch,
       .x = rows.context,
       .dweight = g.projection_weight,
       .dbias = kNoView,
       .accumulate = call.accumulate},
      {.dy = rows.d_branch, .weight = w.projection_weight, .saved = kNoView, .dx = rows.d_context},
      d_branch);
}

void attention_backward(Ops& ops, const EncoderGemms& gemms, const RowPart& rows,
                        const LayerCall& call) {
  const LayerParams& w = *call.weights;
  const LayerParams& g = *call.gradients;
  const LayerActivations& a = *call.saved;
  const Scratch& s = *call.scratch;

  if (rows.is_needed_only) {
    ops.run(Fill{.values = s.d_context});
    ops.run(
        ScatterAddRows{.rows = rows.d_context, .indices = call.needed_rows, .target = s.d_context});
  }
  const Fp8Result d_qkv = gemms.gradient_result(EncoderGemm::kQkv);
  ops.run(AttentionBwd{.dout = as_heads(s.d_context, a.qkv),
                       .qkv = a.qkv,
                       .out = as_heads(a.context, a.qkv),
                       .lse = a.lse,
                       .mask = a.attention_mask,
                       .cu_seqlens = call.batch->cu_seqlens,
                       .dqkv = s.d_qkv,
                       .dbias = g.qkv_bias,
                       .groups = call.batch->groups,
                       .dropout = call.settings.attention_dropout,
                       .max_seq_tokens = call.settings.max_seq_tokens,
                       .scale = attention_scale(a.qkv),
                       .accumulate = call.accumulate,
                       .dqkv_fp8 = d_qkv});
  gemms.backward(EncoderGemm::kQkv,
                 {.dy = as_rows(s.d_qkv),
                  .x = call.x,
                  .dweight = g.qkv_weight,
                  .dbias = kNoView,
                  .accumulate = call.accumulate},
                 {.dy = as_rows(s.d_qkv),
                  .weight = w.qkv_weight,
                  .saved = kNoView,
                  .dx = s.d_hidden,
                  .accumulate = rows.is_needed_only ? Accumulate::kNo : Accumulate::kYes},
                 d_qkv);
  if (rows.is_needed_only) {
    ops.run(ScatterAddRows{.rows = rows.d_out, .indices = call.needed_rows, .target = s.d_hidden});
  }
}

}  // namespace

void layer_backward(Ops& ops, const LayerCall& call) {
  const RowPart rows(call);
  const EncoderGemms row_gemms(ops, call.gemm_mode, &rows.fp8);
  feed_forward_backward(ops, row_gemms, rows, call);
  projection_backward(ops, row_gemms, rows, call);
  attention_backward(ops, EncoderGemms(ops, call.gemm_mode, &call.fp8), rows, call);
}

}  // namespace bertha

#include "harness/model/rows_in_use.h"

namespace bertha {

EmbeddingActivations cut(const EmbeddingActivations& all, const RowsInUse& rows) {
  const int64_t t = rows.tokens;
  return {.sum = all.sum.rows(0, t),
          .mean = all.mean.rows(0, t),
          .rstd = all.rstd.rows(0, t),
          .mask = all.mask.rows(0, t),
          .y = all.y.rows(0, t)};
}

LayerActivations cut(const LayerActivations& all, const RowsInUse& rows) {
  const int64_t t = rows.tokens;
  const int64_t heads = all.qkv.extent(2);
  return {.qkv = all.qkv.rows(0, t),
          .context = all.context.rows(0, t),
          .lse = all.lse.rows(0, heads * t).reshaped({heads, t}),
          .attention_mask = all.attention_mask.rows(0, t),
          .projection_mask = all.projection_mask.rows(0, t),
          .attention_sum = all.attention_sum.rows(0, t),
          .attention_mean = all.attention_mean.rows(0, t),
          .attention_rstd = all.attention_rstd.rows(0, t),
          .attention_y = all.attention_y.rows(0, t),
          .ff_pre = all.ff_pre.rows(0, t),
          .ff_mid = all.ff_mid.rows(0, t),
          .ff_mask = all.ff_mask.rows(0, t),
          .ff_sum = all.ff_sum.rows(0, t),
          .ff_mean = all.ff_mean.rows(0, t),
          .ff_rstd = all.ff_rstd.rows(0, t),
          .y = all.y.rows(0, t)};
}

HeadActivations cut(const HeadActivations& all, const RowsInUse& rows) {
  const int64_t b = rows.seqs;
  const int64_t m = rows.masked;
  HeadActivations used = all;  // the scalars stay as they are
  used.first = all.first.rows(0, b);
  used.pooled = all.pooled.rows(0, b);
  used.nsp_logits = all.nsp_logits.rows(0, b);
  used.picked = all.picked.rows(0, m);
  used.transform_pre = all.transform_pre.rows(0, m);
  used.transform_mid = all.transform_mid.rows(0, m);
  used.ln_mean = all.ln_mean.rows(0, m);
  used.ln_rstd = all.ln_rstd.rows(0, m);
  used.ln_y = all.ln_y.rows(0, m);
  used.mlm_logits = all.mlm_logits.rows(0, m);
  return used;
}

Scratch cut(const Scratch& all, const RowsInUse& rows) {
  const int64_t t = rows.tokens;
  return {.projected = all.projected.rows(0, t),
          .d_hidden = all.d_hidden.rows(0, t),
          .d_branch = all.d_branch.rows(0, t),
          .d_context = all.d_context.rows(0, t),
          .d_qkv = all.d_qkv.rows(0, t),
          .d_ff = all.d_ff.rows(0, t),
          .d_picked = all.d_picked.rows(0, rows.masked),
          .d_transform = all.d_transform.rows(0, rows.masked),
          .d_first = all.d_first.rows(0, rows.seqs),
          .d_pooled = all.d_pooled.rows(0, rows.seqs)};
}

}  // namespace bertha

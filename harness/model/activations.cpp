#include "harness/model/activations.h"

#include <algorithm>

namespace bertha {
namespace {

/// Allocates buffers of `capacity` rows and returns views of their first rows: [rows, columns...].
class RowArena {
 public:
  RowArena(Arena& arena, int64_t capacity, int64_t rows)
      : arena_(arena), capacity_(capacity), rows_(rows) {}

  template <class... Columns>
  View take(DType dtype, Columns... columns) const {
    return arena_.take(dtype, {capacity_, columns...}).rows(0, rows_);
  }

 private:
  Arena& arena_;
  int64_t capacity_;
  int64_t rows_;
};

struct RowArenas {
  RowArena tokens;
  RowArena seqs;
  RowArena masked;
  RowArena needed;
};

EmbeddingActivations allocate_embedding(const RowArena& tokens, const Dims& d, DType io) {
  return {.sum = tokens.take(io, d.H),
          .mean = tokens.take(DType::kF32),
          .rstd = tokens.take(DType::kF32),
          .mask = tokens.take(DType::kU8, d.H / 8),
          .y = tokens.take(io, d.H)};
}

View transposed(const View& rows) { return rows.reshaped({rows.extent(1), rows.extent(0)}); }

/// `rest`: number of rows after the attention.
LayerActivations allocate_layer(const RowArena& tokens, const RowArena& rest, const Dims& d,
                                DType io, bool fp8) {
  const bool saves_derivative = fp8 || io != DType::kF32;
  LayerActivations layer{.qkv = tokens.take(io, 3, d.A, d.D),
                         .context = tokens.take(io, d.H),
                         .lse = tokens.take(DType::kF32, d.A),
                         .attention_mask = tokens.take(DType::kU8, d.A, d.S / 8),
                         .needed_context = {},
                         .needed_x = {},
                         .projection_mask = rest.take(DType::kU8, d.H / 8),
                         .attention_sum = rest.take(io, d.H),
                         .attention_mean = rest.take(DType::kF32),
                         .attention_rstd = rest.take(DType::kF32),
                         .attention_y = rest.take(io, d.H),
                         .ff_pre = saves_derivative ? View() : rest.take(io, d.F),
                         .ff_derivative = saves_derivative ? rest.take(DType::kU8, d.F) : View(),
                         .ff_mid = rest.take(io, d.F),
                         .ff_mask = rest.take(DType::kU8, d.H / 8),
                         .ff_sum = rest.take(io, d.H),
                         .ff_mean = rest.take(DType::kF32),
                         .ff_rstd = rest.take(DType::kF32),
                         .y = rest.take(io, d.H),
                         .fp8_inputs = {}};
  if (fp8) {
    const auto allocate_input = [&](const RowArena& of) {
      return transposed(of.take(DType::kE4M3, d.H));
    };
    layer.fp8_inputs = {allocate_input(tokens), allocate_input(rest), allocate_input(rest),
                        View(layer.ff_mid.data, DType::kE4M3, {d.F, layer.ff_mid.extent(0)})};
  }
  layer.lse = layer.lse.reshaped({d.A, layer.lse.extent(0)});
  return layer;
}

HeadActivations allocate_heads(Arena& arena, const RowArenas& rows, const Dims& d, DType io,
                               bool fp8) {
  return {.hidden = rows.needed.take(io, d.H),
          .pooled = rows.seqs.take(io, d.H),
          .nsp_logits = rows.seqs.take(io, 2),
          .transform_pre = rows.masked.take(io, d.H),
          .transform_mid = rows.masked.take(io, d.H),
          .ln_mean = rows.masked.take(DType::kF32),
          .ln_rstd = rows.masked.take(DType::kF32),
          .ln_y = rows.masked.take(io, d.H),
          .mlm_logits = rows.masked.take(io, d.V),
          .nsp_scale = arena.take(DType::kF32, {1}),
          .mlm_scale = arena.take(DType::kF32, {1}),
          .denominators = arena.take(DType::kI64, {2}),
          .fp8_input = fp8 ? transposed(rows.masked.take(DType::kE4M3, d.H)) : View()};
}

Scratch allocate_scratch(Arena& arena, const BatchRows& capacity, const RowArenas& rows,
                         const Dims& d, DType io, bool fp8) {
  const auto allocate_fp8 = [&](int64_t columns, int64_t columns_of_masked) {
    const int64_t bytes = std::max(capacity.tokens * columns, capacity.masked * columns_of_masked);
    return fp8 ? arena.take(DType::kU8, {bytes}) : View();
  };
  return {.projected = rows.tokens.take(io, d.H),
          .d_hidden = rows.tokens.take(io, d.H),
          .d_branch = rows.tokens.take(io, d.H),
          .d_context = rows.tokens.take(io, d.H),
          .d_qkv = rows.tokens.take(io, 3, d.A, d.D),
          .d_ff = rows.tokens.take(io, d.F),
          .d_needed = rows.needed.take(io, d.H),
          .d_needed_context = rows.needed.take(io, d.H),
          .d_transform = rows.masked.take(io, d.H),
          .d_pooled = rows.seqs.take(io, d.H),
          .fp8_rows = allocate_fp8(3 * d.H, d.V),
          .fp8_inner_rows = allocate_fp8(d.F, 0),
          .fp8_gradient_transposed = allocate_fp8(std::max(d.F, 3 * d.H), d.V)};
}

}  // namespace

std::vector<NamedView> named_activations(const Activations& activations, const BatchRows& live) {
  std::vector<NamedView> named;
  const auto add = [&named](const std::string& name, const View& values, int64_t rows) {
    named.push_back({.name = name, .values = values.rows(0, rows)});
  };
  add("embeddings.sum", activations.embedding.sum, live.tokens);
  add("embeddings.output", activations.embedding.y, live.tokens);
  for (size_t i = 0; i < activations.layers.size(); ++i) {
    const LayerActivations& layer = activations.layers[i];
    const std::string prefix = concat("layer.", i, ".");
    const int64_t rest = std::min(live.tokens, layer.y.extent(0));
    add(prefix + "attention.qkv", layer.qkv, live.tokens);
    add(prefix + "attention.context", layer.context, live.tokens);
    add(prefix + "attention.sum", layer.attention_sum, rest);
    const bool fp8 = layer.fp8_inputs[0].has_data();
    const bool is_last = i + 1 == activations.layers.size();
    if (!fp8) add(prefix + "attention.output", layer.attention_y, rest);
    if (layer.ff_pre.has_data()) add(prefix + "feed_forward.before_gelu", layer.ff_pre, rest);
    if (!fp8) add(prefix + "feed_forward.after_gelu", layer.ff_mid, rest);
    add(prefix + "feed_forward.sum", layer.ff_sum, rest);
    if (!fp8 || is_last) add(prefix + "output", layer.y, rest);
  }
  const HeadActivations& heads = activations.heads;
  add("pooler.output", heads.pooled, live.seqs);
  add("mlm.transform.before_gelu", heads.transform_pre, live.masked);
  add("mlm.transform.after_gelu", heads.transform_mid, live.masked);
  add("mlm.transform.output", heads.ln_y, live.masked);
  add("gradient of nsp.logits", heads.nsp_logits, live.seqs);
  add("gradient of mlm.logits", heads.mlm_logits, live.masked);
  return named;
}

Activations allocate_activations(Arena& arena, const Dims& dims, const BatchRows& capacity,
                                 const BatchRows& rows, DType io, bool fp8) {
  const RowArenas arenas{.tokens = {arena, capacity.tokens, rows.tokens},
                         .seqs = {arena, capacity.seqs, rows.seqs},
                         .masked = {arena, capacity.masked, rows.masked},
                         .needed = {arena, capacity.needed, rows.needed}};
  const RowArena last(arena, capacity.tokens, rows.last);
  Activations all;
  all.embedding = allocate_embedding(arenas.tokens, dims, io);
  for (int64_t layer = 0; layer < dims.L; ++layer) {
    const RowArena& rest = layer + 1 < dims.L ? arenas.tokens : last;
    all.layers.push_back(allocate_layer(arenas.tokens, rest, dims, io, fp8));
  }
  all.layers.back().needed_context = arenas.needed.take(io, dims.H);
  all.layers.back().needed_x = arenas.needed.take(io, dims.H);
  all.heads = allocate_heads(arena, arenas, dims, io, fp8);
  all.scratch = allocate_scratch(arena, capacity, arenas, dims, io, fp8);
  return all;
}

}  // namespace bertha

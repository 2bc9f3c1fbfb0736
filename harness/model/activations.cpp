#include "harness/model/activations.h"

namespace bertha {
namespace {

LayerActivations take_layer(Arena& arena, const Dims& d, int64_t tokens, DType io) {
  return {.qkv = arena.take(io, {tokens, 3, d.A, d.D}),
          .context = arena.take(io, {tokens, d.H}),
          .lse = arena.take(DType::kF32, {d.A * tokens}),
          .attention_mask = arena.take(DType::kU8, {tokens, d.A, d.S / 8}),
          .projection_mask = arena.take(DType::kU8, {tokens, d.H / 8}),
          .attention_sum = arena.take(io, {tokens, d.H}),
          .attention_mean = arena.take(DType::kF32, {tokens}),
          .attention_rstd = arena.take(DType::kF32, {tokens}),
          .attention_y = arena.take(io, {tokens, d.H}),
          .ff_pre = arena.take(io, {tokens, d.F}),
          .ff_mid = arena.take(io, {tokens, d.F}),
          .ff_mask = arena.take(DType::kU8, {tokens, d.H / 8}),
          .ff_sum = arena.take(io, {tokens, d.H}),
          .ff_mean = arena.take(DType::kF32, {tokens}),
          .ff_rstd = arena.take(DType::kF32, {tokens}),
          .y = arena.take(io, {tokens, d.H})};
}

HeadActivations take_heads(Arena& arena, const Dims& d, const BatchCapacity& capacity, DType io) {
  const int64_t seqs = capacity.seqs;
  const int64_t masked = capacity.masked;
  return {.first = arena.take(io, {seqs, d.H}),
          .pooled = arena.take(io, {seqs, d.H}),
          .nsp_logits = arena.take(io, {seqs, 2}),
          .picked = arena.take(io, {masked, d.H}),
          .transform_pre = arena.take(io, {masked, d.H}),
          .transform_mid = arena.take(io, {masked, d.H}),
          .ln_mean = arena.take(DType::kF32, {masked}),
          .ln_rstd = arena.take(DType::kF32, {masked}),
          .ln_y = arena.take(io, {masked, d.H}),
          .mlm_logits = arena.take(io, {masked, d.V}),
          .nsp_scale = arena.take(DType::kF32, {1}),
          .mlm_scale = arena.take(DType::kF32, {1}),
          .denominators = arena.take(DType::kI64, {2})};
}

Scratch take_scratch(Arena& arena, const Dims& d, const BatchCapacity& capacity, DType io) {
  const int64_t tokens = capacity.tokens;
  return {.projected = arena.take(io, {tokens, d.H}),
          .d_hidden = arena.take(io, {tokens, d.H}),
          .d_branch = arena.take(io, {tokens, d.H}),
          .d_context = arena.take(io, {tokens, d.H}),
          .d_qkv = arena.take(io, {tokens, 3, d.A, d.D}),
          .d_ff = arena.take(io, {tokens, d.F}),
          .d_picked = arena.take(io, {capacity.masked, d.H}),
          .d_transform = arena.take(io, {capacity.masked, d.H}),
          .d_first = arena.take(io, {capacity.seqs, d.H}),
          .d_pooled = arena.take(io, {capacity.seqs, d.H})};
}

}  // namespace

Activations take_activations(Arena& arena, const Dims& dims, const BatchCapacity& capacity,
                             DType io) {
  const int64_t tokens = capacity.tokens;
  Activations all;
  all.embedding = {.sum = arena.take(io, {tokens, dims.H}),
                   .mean = arena.take(DType::kF32, {tokens}),
                   .rstd = arena.take(DType::kF32, {tokens}),
                   .mask = arena.take(DType::kU8, {tokens, dims.H / 8}),
                   .y = arena.take(io, {tokens, dims.H})};
  for (int64_t layer = 0; layer < dims.L; ++layer) {
    all.layers.push_back(take_layer(arena, dims, tokens, io));
  }
  all.heads = take_heads(arena, dims, capacity, io);
  all.scratch = take_scratch(arena, dims, capacity, io);
  return all;
}

}  // namespace bertha

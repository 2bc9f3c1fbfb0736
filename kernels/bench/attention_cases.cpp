#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/bench/case_parts.h"

namespace bertha {

std::vector<OpCase> attention_cases(const BenchModel& m, const BenchBatch& batch, float dropout) {
  const Part part = checked_part(batch);
  const int64_t t = batch.rows();
  const int64_t d = m.hidden / m.heads;
  std::vector<SequenceGroup> few;
  for (SequenceGroup group : batch.groups) {
    const int64_t seqs = std::min(group.num_seqs, part.seqs - group.first_seq);
    if (seqs <= 0) break;
    group.num_seqs = seqs;
    group.num_tokens =
        batch.cu_seqlens[static_cast<size_t>(group.first_seq + seqs)] - group.first_token;
    few.push_back(group);
  }
  double squares = 0;
  for (int64_t b = 0; b < batch.seqs(); ++b) {
    const double length =
        batch.cu_seqlens[static_cast<size_t>(b + 1)] - batch.cu_seqlens[static_cast<size_t>(b)];
    squares += length * length;
  }
  const auto tensors = [&](double qkv_passes) -> std::vector<BenchTensor> {
    return {{.name = "qkv",
             .extents = {t, 3, m.heads, d},
             .checked = {part.tokens, 3, m.heads, d},
             .scale = 2,
             .passes = qkv_passes},
            ids("cu_seqlens", batch.cu_seqlens, part.seqs + 1),
            {.name = "out",
             .extents = {t, m.heads, d},
             .checked = {part.tokens, m.heads, d},
             .passes = 1,
             .is_result = true,
             .terms = m.mask_width},
            {.name = "lse",
             .extents = {m.heads, t},
             .checked = {m.heads, part.tokens},
             .io = false,
             .passes = 1},
            {.name = "mask",
             .extents = {t, m.heads, m.mask_width / 8},
             .checked = {part.tokens, m.heads, m.mask_width / 8},
             .io = false,
             .dtype = DType::kU8},
            random_state()};
  };
  const auto forward = [=, width = m.mask_width, all = batch.groups](const OpCall& c) {
    c.ops.run(AttentionFwd{
        .qkv = c.tensors[0],
        .cu_seqlens = c.tensors[1],
        .out = c.tensors[2],
        .lse = c.tensors[3],
        .mask = c.tensors[4],
        .groups = c.extent == Extent::kFull ? std::span(all) : std::span(few),
        .dropout = {.random = c.tensors[5], .probability = dropout, .site = kBenchDropoutSite},
        .max_seq_tokens = width,
        .scale = 1 / std::sqrt(static_cast<float>(d))});
  };
  const auto backward = [=, width = m.mask_width, all = batch.groups](const OpCall& c) {
    c.ops.run(AttentionBwd{
        .dout = c.tensors[6],
        .qkv = c.tensors[0],
        .out = c.tensors[2],
        .lse = c.tensors[3],
        .mask = c.tensors[4],
        .cu_seqlens = c.tensors[1],
        .dqkv = c.tensors[7],
        .dbias = View(),
        .groups = c.extent == Extent::kFull ? std::span(all) : std::span(few),
        .dropout = {.random = c.tensors[5], .probability = dropout, .site = kBenchDropoutSite},
        .max_seq_tokens = width,
        .scale = 1 / std::sqrt(static_cast<float>(d))});
  };
  const std::string shape = concat(batch.name, ", T=", t, " A=", m.heads, " D=", d,
                                   dropout > 0 ? concat(", dropout ", dropout) : "");
  const double flops = 4 * static_cast<double>(m.hidden) * squares;
  std::vector<OpCase> cases;
  cases.push_back({.operation = "attention_fwd",
                   .shape = shape,
                   .tensors = tensors(1),
                   .call = forward,
                   .flops = flops});
  OpCase op{.operation = "attention_bwd",
            .shape = shape,
            .tensors = tensors(1),
            .call = backward,
            .prepare = forward,
            .flops = 2 * flops};
  op.tensors[2].is_result = false;
  op.tensors.push_back({.name = "dout",
                        .extents = {t, m.heads, d},
                        .checked = {part.tokens, m.heads, d},
                        .scale = 1,
                        .passes = 1});
  op.tensors.push_back({.name = "dqkv",
                        .extents = {t, 3, m.heads, d},
                        .checked = {part.tokens, 3, m.heads, d},
                        .passes = 1,
                        .is_result = true,
                        .terms = 4 * m.mask_width});
  cases.push_back(std::move(op));
  return cases;
}

}  // namespace bertha

#include <algorithm>
#include <cmath>

#include "kernels/bench/case_parts.h"
#include "kernels/ops/attention.h"

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
  const auto per_token = [&](const char* name, std::vector<int64_t> extents,
                             double scale) -> BenchTensor {
    extents.insert(extents.begin(), t);
    std::vector<int64_t> checked = extents;
    checked.front() = part.tokens;
    return {.name = name, .extents = extents, .checked = checked, .scale = scale, .passes = 1};
  };
  BenchTensor lse = per_token("lse", {m.heads}, 0);
  std::ranges::reverse(lse.extents);
  std::ranges::reverse(lse.checked);
  BenchTensor mask = per_token("mask", {m.heads, m.mask_width / 8}, 0);
  mask.passes = 0;
  mask.dtype = DType::kU8;
  lse.io = mask.io = false;
  const auto forward = [=, width = m.mask_width, all = batch.groups](const OpCall& c) {
    c.ops.run(AttentionFwd{
        .qkv = c["qkv"],
        .cu_seqlens = c["cu_seqlens"],
        .out = c["out"],
        .lse = c["lse"],
        .mask = c["mask"],
        .groups = c.extent == Extent::kFull ? std::span(all) : std::span(few),
        .dropout = {.random = c["random"], .probability = dropout, .site = kBenchDropoutSite},
        .max_seq_tokens = width,
        .scale = 1 / std::sqrt(static_cast<float>(d))});
  };
  const auto backward = [=, width = m.mask_width, all = batch.groups](const OpCall& c) {
    c.ops.run(AttentionBwd{
        .dout = c["dout"],
        .qkv = c["qkv"],
        .out = c["out"],
        .lse = c["lse"],
        .mask = c["mask"],
        .cu_seqlens = c["cu_seqlens"],
        .dqkv = c["dqkv"],
        .dbias = View(),
        .groups = c.extent == Extent::kFull ? std::span(all) : std::span(few),
        .dropout = {.random = c["random"], .probability = dropout, .site = kBenchDropoutSite},
        .max_seq_tokens = width,
        .scale = 1 / std::sqrt(static_cast<float>(d))});
  };
  const std::string shape = concat(batch.name, ", T=", t, " A=", m.heads, " D=", d,
                                   dropout > 0 ? concat(", dropout ", dropout) : "");
  const double flops = 4 * static_cast<double>(m.hidden) * squares;
  const OpCase op{.operation = "attention_fwd",
                  .shape = shape,
                  .tensors = {per_token("qkv", {3, m.heads, d}, 2),
                              ids("cu_seqlens", batch.cu_seqlens, part.seqs + 1),
                              as_result(per_token("out", {m.heads, d}, 0), m.mask_width), lse, mask,
                              random_state()},
                  .call = forward,
                  .flops = flops};
  OpCase gradient =
      backward_case(op, "attention_bwd",
                    {per_token("dout", {m.heads, d}, 1),
                     as_result(per_token("dqkv", {3, m.heads, d}, 0), 4 * m.mask_width)},
                    backward);
  gradient.flops = 2 * flops;
  return {op, gradient};
}

}  // namespace bertha

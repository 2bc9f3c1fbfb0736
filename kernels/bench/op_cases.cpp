#include "kernels/bench/op_cases.h"

#include <utility>

#include "kernels/bench/case_parts.h"
#include "kernels/rows/bench/layer_norm_cases.h"

namespace bertha {
namespace {

constexpr int64_t kCheckedTokens = 1024;  // whole sequences, at least one

}  // namespace

Part checked_part(const BenchBatch& batch) {
  Part part{.seqs = 1};
  while (part.seqs < batch.seqs() &&
         batch.cu_seqlens[static_cast<size_t>(part.seqs + 1)] <= kCheckedTokens) {
    ++part.seqs;
  }
  part.tokens = batch.cu_seqlens[static_cast<size_t>(part.seqs)];
  while (part.masked < batch.masked &&
         batch.masked_positions[static_cast<size_t>(part.masked)] < part.tokens) {
    ++part.masked;
  }
  return part;
}

std::vector<OpCase> make_op_cases(const BenchModel& model, const std::vector<BenchBatch>& batches) {
  const BenchBatch& batch = batches.front();
  const Part part = checked_part(batch);
  std::vector<OpCase> cases;
  add_embedding(model, batch, cases);
  add_linear(model, batch, cases);
  const auto add_attention = [&](const BenchBatch& lengths, float dropout) {
    for (OpCase& op : attention_cases(model, lengths, dropout)) cases.push_back(std::move(op));
  };
  for (const BenchBatch& lengths : batches) {
    add_attention(lengths, 0);
    if (model.attention_dropout > 0) add_attention(lengths, model.attention_dropout);
  }
  add_residual_ln({batch.rows(), part.tokens, model.hidden}, model.hidden_dropout, cases);
  for (const int64_t columns : {model.hidden, model.feed_forward}) {
    if (columns % 16 != 0) continue;
    add_quantize({batch.rows() / 16 * 16, part.tokens / 16 * 16, columns}, cases);
  }
  add_layer_norm({batch.masked_rows(), part.masked, model.hidden}, cases);
  add_heads(model, batch, cases);
  add_optimizer(model, cases);
  return cases;
}

}  // namespace bertha

#include <algorithm>
#include <map>
#include <utility>

#include "kernels/bench/case_parts.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/residual_ln.h"

namespace bertha {

void add_residual_ln(const Rows& r, float dropout, std::vector<OpCase>& cases) {
  const auto forward = [=](const OpCall& c) {
    c.ops.run(ResidualLnFwd{.x = c[0],
                            .bias = c[1],
                            .residual = c[2],
                            .gamma = c[3],
                            .beta = c[4],
                            .sum = c[5],
                            .y = c[6],
                            .mean = c[7],
                            .rstd = c[8],
                            .mask = c[9],
                            .dropout = {.random = c[10], .probability = dropout, .site = 4}});
  };
  cases.push_back(
      {.operation = "residual_ln_fwd",
       .shape = concat(r.text(), dropout > 0 ? concat(", dropout ", dropout) : ""),
       .tensors = {r.matrix("x", 1, 1), r.vector("bias", 1), r.matrix("residual", 1, 1),
                   r.vector("gamma", 1), r.vector("beta", 1), r.result("sum", 1), r.result("y", 1),
                   r.statistic("mean"), r.statistic("rstd"), r.mask(1), random_state()},
       .call = forward});
  const auto backward = [=](const OpCall& c) {
    c.ops.run(ResidualLnBwd{.dy = c[11],
                            .sum = c[5],
                            .mean = c[7],
                            .rstd = c[8],
                            .mask = c[9],
                            .gamma = c[3],
                            .dresidual = c[12],
                            .dx = c[13],
                            .dgamma = c[14],
                            .dbeta = c[15],
                            .dbias = c[16],
                            .dropout = {.random = c[10], .probability = dropout, .site = 4},
                            .accumulate = kAdd});
  };
  OpCase op = backward_case(cases.back(), "residual_ln_bwd",
                            {r.gradient(), r.result("dresidual", 1), r.result("dx", 1),
                             r.row_sum("dgamma"), r.row_sum("dbeta"), r.row_sum("dbias")},
                            backward);
  for (const size_t unread : {0, 2, 6}) op.tensors[unread].passes = 0;  // forward's
  cases.push_back(std::move(op));
}

namespace {

/// How often the most frequent word occurs: as many adds to one row of the word table.
int64_t most_of_one_word(const BenchBatch& batch, int64_t tokens) {
  std::map<int32_t, int64_t> counts;
  int64_t most = 1;
  for (int64_t t = 0; t < tokens; ++t) {
    most = std::max(most, ++counts[batch.word_ids[static_cast<size_t>(t)]]);
  }
  return most;
}

}  // namespace

void add_embedding(const BenchModel& m, const BenchBatch& batch, std::vector<OpCase>& cases) {
  const Part part = checked_part(batch);
  const Rows r{batch.rows(), part.tokens, m.hidden};
  const float dropout = m.hidden_dropout;
  const auto table = [&](const char* name, int64_t rows) -> BenchTensor {
    return {.name = name, .extents = {rows, m.hidden}, .scale = 1};
  };
  const auto forward = [=](const OpCall& c) {
    c.ops.run(EmbeddingFwd{.word_ids = c[0],
                           .position_ids = c[1],
                           .segment_ids = c[2],
                           .word_table = c[3],
                           .position_table = c[4],
                           .segment_table = c[5],
                           .gamma = c[6],
                           .beta = c[7],
                           .sum = c[8],
                           .y = c[9],
                           .mean = c[10],
                           .rstd = c[11],
                           .mask = c[12],
                           .dropout = {.random = c[13], .probability = dropout, .site = 5}});
  };
  const OpCase fwd{
      .operation = "embedding_fwd",
      .shape = concat(r.text(), ", V=", m.vocab_rows),
      .tensors = {ids("word_ids", batch.word_ids, part.tokens),
                  ids("position_ids", batch.position_ids, part.tokens),
                  ids("segment_ids", batch.segment_ids, part.tokens),
                  table("word_table", m.vocab_rows), table("position_table", m.positions),
                  table("segment_table", m.segment_types), r.vector("gamma", 1),
                  r.vector("beta", 1), r.result("sum", 2),  // written, and a word's row read
                  r.result("y", 1), r.statistic("mean"), r.statistic("rstd"), r.mask(1),
                  random_state()},
      .call = forward};
  cases.push_back(fwd);
  BenchTensor order = ids("rows_by_word", batch.rows_by_word, part.tokens);
  order.is_absent_in_reference = true;
  for (const bool sorted : {true, false}) {
    const auto backward = [=](const OpCall& c) {
      c.ops.run(EmbeddingBwd{.dy = c[14],
                             .word_ids = c[0],
                             .position_ids = c[1],
                             .segment_ids = c[2],
                             .rows_by_word = sorted ? c[15] : View(),
                             .sum = c[8],
                             .mean = c[10],
                             .rstd = c[11],
                             .mask = c[12],
                             .gamma = c[6],
                             .dword_table = c[3],
                             .dposition_table = c[4],
                             .dsegment_table = c[5],
                             .dgamma = c[16],
                             .dbeta = c[17],
                             .dropout = {.random = c[13], .probability = dropout, .site = 5},
                             .accumulate = kAdd});
    };
    OpCase op =
        backward_case(fwd, "embedding_bwd",
                      {r.gradient(), order, r.row_sum("dgamma"), r.row_sum("dbeta")}, backward);
    op.shape += sorted ? ", sorted" : ", atomic";
    // forward's tables become gradients
    for (const size_t i : {3, 4, 5}) op.tensors[i] = as_result(op.tensors[i], part.tokens);
    if (!sorted) op.tensors[3].roundings = most_of_one_word(batch, part.tokens);
    op.tensors[8].passes = 3;  // sum; a word's row read and written
    op.tensors[9].passes = 0;
    cases.push_back(std::move(op));
  }
}

}  // namespace bertha

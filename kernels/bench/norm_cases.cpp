#include <algorithm>
#include <map>
#include <utility>

#include "kernels/bench/case_parts.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/residual_ln.h"

namespace bertha {

void add_residual_ln(const Rows& r, float dropout, std::vector<OpCase>& cases) {
  const auto forward = [=](const OpCall& c) {
    c.ops.run(ResidualLnFwd{.x = c["x"],
                            .bias = c["bias"],
                            .residual = c["residual"],
                            .gamma = c["gamma"],
                            .beta = c["beta"],
                            .sum = c["sum"],
                            .y = c["y"],
                            .mean = c["mean"],
                            .rstd = c["rstd"],
                            .mask = c["mask"],
                            .dropout = {.random = c["random"], .probability = dropout, .site = 4}});
  };
  cases.push_back(
      {.operation = "residual_ln_fwd",
       .shape = concat(r.text(), dropout > 0 ? concat(", dropout ", dropout) : ""),
       .tensors = {r.matrix("x", 1, 1), r.vector("bias", 1), r.matrix("residual", 1, 1),
                   r.vector("gamma", 1), r.vector("beta", 1), r.result("sum", 1), r.result("y", 1),
                   r.statistic("mean"), r.statistic("rstd"), r.mask(1), random_state()},
       .call = forward});
  const auto backward = [=](const OpCall& c) {
    c.ops.run(ResidualLnBwd{.dy = c["dy"],
                            .sum = c["sum"],
                            .mean = c["mean"],
                            .rstd = c["rstd"],
                            .mask = c["mask"],
                            .gamma = c["gamma"],
                            .dresidual = c["dresidual"],
                            .dx = c["dx"],
                            .dgamma = c["dgamma"],
                            .dbeta = c["dbeta"],
                            .dbias = c["dbias"],
                            .dropout = {.random = c["random"], .probability = dropout, .site = 4},
                            .accumulate = kAdd});
  };
  OpCase op = backward_case(cases.back(), "residual_ln_bwd",
                            {r.gradient(), r.result("dresidual", 1), r.result("dx", 1),
                             r.row_sum("dgamma"), r.row_sum("dbeta"), r.row_sum("dbias")},
                            backward);
  for (const char* unread : {"x", "residual", "y"}) op[unread].passes = 0;
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
    c.ops.run(EmbeddingFwd{.word_ids = c["word_ids"],
                           .position_ids = c["position_ids"],
                           .segment_ids = c["segment_ids"],
                           .word_table = c["word_table"],
                           .position_table = c["position_table"],
                           .segment_table = c["segment_table"],
                           .gamma = c["gamma"],
                           .beta = c["beta"],
                           .sum = c["sum"],
                           .y = c["y"],
                           .mean = c["mean"],
                           .rstd = c["rstd"],
                           .mask = c["mask"],
                           .dropout = {.random = c["random"], .probability = dropout, .site = 5}});
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
      c.ops.run(EmbeddingBwd{.dy = c["dy"],
                             .word_ids = c["word_ids"],
                             .position_ids = c["position_ids"],
                             .segment_ids = c["segment_ids"],
                             .rows_by_word = sorted ? c["rows_by_word"] : View(),
                             .sum = c["sum"],
                             .mean = c["mean"],
                             .rstd = c["rstd"],
                             .mask = c["mask"],
                             .gamma = c["gamma"],
                             .dword_table = c["word_table"],
                             .dposition_table = c["position_table"],
                             .dsegment_table = c["segment_table"],
                             .dgamma = c["dgamma"],
                             .dbeta = c["dbeta"],
                             .dropout = {.random = c["random"], .probability = dropout, .site = 5},
                             .accumulate = kAdd});
    };
    OpCase op =
        backward_case(fwd, "embedding_bwd",
                      {r.gradient(), order, r.row_sum("dgamma"), r.row_sum("dbeta")}, backward);
    op.shape += sorted ? ", sorted" : ", atomic";
    // forward's tables become gradients
    for (const char* name : {"word_table", "position_table", "segment_table"}) {
      op[name] = as_result(op[name], part.tokens);
    }
    if (!sorted) op["word_table"].roundings = most_of_one_word(batch, part.tokens);
    op["sum"].passes = 3;  // and a word's row is read and written
    op["y"].passes = 0;
    cases.push_back(std::move(op));
  }
}

}  // namespace bertha

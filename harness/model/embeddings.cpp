#include "harness/model/embeddings.h"
#include "kernels/ops/embedding.h"

namespace bertha {

void embeddings_forward(Ops& ops, const EmbeddingCall& call) {
  const EmbeddingParams& w = *call.weights;
  ops.run(EmbeddingFwd{.word_ids = call.batch->word_ids,
                       .position_ids = call.batch->position_ids,
                       .segment_ids = call.batch->segment_ids,
                       .word_table = w.word_table,
                       .position_table = w.position_table,
                       .segment_table = w.segment_table,
                       .gamma = w.ln_gamma,
                       .beta = w.ln_beta,
                       .sum = call.saved->sum,
                       .y = call.saved->y,
                       .mean = call.saved->mean,
                       .rstd = call.saved->rstd,
                       .mask = call.saved->mask,
                       .dropout = call.dropout,
                       .epsilon = call.layer_norm_epsilon});
}

void embeddings_backward(Ops& ops, const EmbeddingCall& call, const View& dy) {
  const EmbeddingParams& g = *call.gradients;
  ops.run(EmbeddingBwd{.dy = dy,
                       .word_ids = call.batch->word_ids,
                       .position_ids = call.batch->position_ids,
                       .segment_ids = call.batch->segment_ids,
                       .rows_by_word = call.batch->rows_by_word,
                       .sum = call.saved->sum,
                       .mean = call.saved->mean,
                       .rstd = call.saved->rstd,
                       .mask = call.saved->mask,
                       .gamma = call.weights->ln_gamma,
                       .dword_table = g.word_table,
                       .dposition_table = g.position_table,
                       .dsegment_table = g.segment_table,
                       .dgamma = g.ln_gamma,
                       .dbeta = g.ln_beta,
                       .dropout = call.dropout,
                       .accumulate = Accumulate::kYes});
}

}  // namespace bertha

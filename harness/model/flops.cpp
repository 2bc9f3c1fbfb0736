#include "harness/model/flops.h"

namespace bertha {

int64_t model_flops_per_step(const Dims& dims, const StepWork& work) {
  const int64_t square = dims.H * dims.H;
  // Query, key, value and output GEMMs; then the two of the feed-forward part.
  const int64_t per_token = 8 * square + 4 * dims.H * dims.F;
  const int64_t encoder = dims.L * (work.num_tokens * per_token + 4 * dims.H * work.squared_tokens);
  const int64_t masked_head = work.num_masked * (2 * square + 2 * dims.H * dims.V);
  const int64_t pooler_and_sentence_head = work.num_seqs * (2 * square + 4 * dims.H);
  return 3 * (encoder + masked_head + pooler_and_sentence_head);
}

}  // namespace bertha

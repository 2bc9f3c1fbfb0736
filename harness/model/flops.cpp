#include "harness/model/flops.h"

namespace bertha {

double model_flops_per_step(const Dims& dims, const StepWork& work) {
  const auto hidden = static_cast<double>(dims.H);
  const double square = hidden * hidden;
  // The query, key, value and output GEMMs, then the two feed-forward GEMMs.
  const double per_token = 8 * square + 4 * hidden * static_cast<double>(dims.F);
  const double encoder =
      static_cast<double>(dims.L) * (static_cast<double>(work.num_tokens) * per_token +
                                     4 * hidden * static_cast<double>(work.squared_tokens));
  const double masked_head = static_cast<double>(work.num_masked) *
                             (2 * square + 2 * hidden * static_cast<double>(dims.V));
  const double pooler_and_sentence_head =
      static_cast<double>(work.num_seqs) * (2 * square + 4 * hidden);
  return 3 * (encoder + masked_head + pooler_and_sentence_head);
}

}  // namespace bertha

#include "harness/train/eval_set.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/error.h"

namespace bertha {

EvalSetFacts describe_eval_set(std::span<const HostBatch> batches, int64_t vocab_size,
                               Transport& transport) {
  // One count per token, and the sequences behind them.
  std::vector<int64_t> counts(static_cast<size_t>(vocab_size) + 1, 0);
  for (const HostBatch& batch : batches) {
    for (const int32_t label : batch.masked_labels) ++counts[static_cast<size_t>(label)];
    counts.back() += batch.num_seqs;
  }
  counts = transport.sum(counts);

  EvalSetFacts facts{.num_seqs = counts.back()};
  counts.pop_back();
  int64_t most = 0;
  for (const int64_t count : counts) {
    facts.num_masked += count;
    most = std::max(most, count);
  }
  if (facts.num_masked > 0) {
    facts.constant_answer_accuracy =
        static_cast<double>(most) / static_cast<double>(facts.num_masked);
  }
  return facts;
}

std::string warning_of_small_set(const EvalSetFacts& facts, const std::string& path) {
  constexpr int64_t kFewestMasked = 100;
  if (facts.num_masked >= kFewestMasked) return "";
  const double error = 50 / std::sqrt(static_cast<double>(std::max<int64_t>(facts.num_masked, 1)));
  return concat("data.eval (", path, ") holds only ", facts.num_masked,
                " masked tokens: the accuracy is uncertain by up to ", std::llround(error),
                " percentage points; give more evaluation text");
}

}  // namespace bertha

#include "harness/train/evaluate.h"

#include <cstddef>

namespace bertha {
namespace {

double ratio(double numerator, int64_t denominator) {
  return denominator == 0 ? 0.0 : numerator / static_cast<double>(denominator);
}

}  // namespace

void sum_stats_over_ranks(const Bert& model, const ModelParts& parts, Collectives& collectives) {
  // Doubles first, counts after: two reductions over the halves of the block.
  static_assert(offsetof(LossStats, mlm_correct) == 2 * sizeof(double) &&
                sizeof(LossStats) == 2 * sizeof(double) + 5 * sizeof(int64_t));
  char* block = static_cast<char*>(model.stats().data);
  const std::unique_ptr<Event> computed = parts.device->make_event();
  parts.stream->record(*computed);
  collectives.stream().wait_for(*computed);
  collectives.all_reduce_sum(View(block, DType::kF64, {2}));
  collectives.all_reduce_sum(View(block + offsetof(LossStats, mlm_correct), DType::kI64, {5}));
}

EvalResult evaluate(Bert& model, std::span<const HostBatch> batches, const ModelParts& parts,
                    Collectives& collectives, const std::function<void()>& after_batch) {
  const ProfilerRange range(*parts.device, "evaluation");
  model.reset_stats();
  for (const HostBatch& batch : batches) {
    model.upload(batch);
    model.forward_eval();
    if (after_batch) after_batch();
  }
  sum_stats_over_ranks(model, parts, collectives);
  const Buffer pinned = parts.device->allocate_pinned(static_cast<int64_t>(sizeof(LossStats)));
  parts.device->copy(collectives.stream(), pinned.data(), model.stats().data, sizeof(LossStats));
  collectives.stream().wait_on_host();
  const LossStats& sums = *static_cast<const LossStats*>(pinned.data());
  return {.mlm_accuracy = ratio(static_cast<double>(sums.mlm_correct), sums.mlm_count),
          .mlm_loss = ratio(sums.mlm_loss_sum, sums.mlm_count),
          .nsp_accuracy = ratio(static_cast<double>(sums.nsp_correct), sums.nsp_count),
          .masked_tokens = sums.mlm_count,
          .seqs = sums.nsp_count};
}

}  // namespace bertha

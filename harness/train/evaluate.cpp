#include "harness/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/figures.h"

namespace bertha {
namespace {

double ratio(double numerator, int64_t denominator) {
  return denominator == 0 ? 0.0 : numerator / static_cast<double>(denominator);
}

}  // namespace

EvalSetFacts describe_eval_set(std::span<const HostBatch> batches, int64_t vocab_size,
                               Transport& transport, const std::string& path) {
  // One count per token, then the number of sequences and the sum of their ids.
  const auto tokens = static_cast<size_t>(vocab_size);
  std::vector<int64_t> counts(tokens + 2, 0);
  for (const HostBatch& batch : batches) {
    for (const int32_t label : batch.masked_labels) ++counts[static_cast<size_t>(label)];
    counts[tokens] += batch.num_seqs;
    for (const int64_t id : batch.sample_ids) counts[tokens + 1] += id;
  }
  counts = transport.sum(counts);

  EvalSetFacts facts{.num_seqs = counts[tokens]};
  // A rank takes its part of the set on its node, which may differ between nodes.
  if (counts[tokens + 1] != facts.num_seqs * (facts.num_seqs - 1) / 2) {
    fail(ExitCode::kData, "the ranks see different shards of data.eval: their ", facts.num_seqs,
         " sequences are not one complete set; copy the set to every node");
  }
  counts.resize(tokens);
  int64_t most = 0;
  for (const int64_t count : counts) {
    facts.num_masked += count;
    most = std::max(most, count);
  }
  if (facts.num_masked == 0) {
    fail(ExitCode::kData, "data.eval (", path, "): none of its ", facts.num_seqs,
         " sequences has a masked token, so the accuracy is undefined; give data with masked "
         "tokens, "
         "as from `bertha data prepare`");
  }
  facts.constant_answer_accuracy =
      static_cast<double>(most) / static_cast<double>(facts.num_masked);
  return facts;
}

std::string uncertainty_text(int64_t masked_tokens) {
  const double points = 50 / std::sqrt(static_cast<double>(std::max<int64_t>(masked_tokens, 1)));
  return concat("uncertain by up to ", fixed_text(points, 1), " percentage points");
}

std::string warning_of_small_set(const EvalSetFacts& facts, const std::string& path) {
  constexpr int64_t kMinMasked = 100;
  if (facts.num_masked >= kMinMasked) return "";
  return concat("data.eval (", path, ") contains only ", facts.num_masked,
                " masked tokens: the accuracy is ", uncertainty_text(facts.num_masked),
                "; give more evaluation text");
}

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
  model.reset_stats();  // training adds to them
  const LossStats& sums = *static_cast<const LossStats*>(pinned.data());
  return {.mlm_accuracy = ratio(static_cast<double>(sums.mlm_correct), sums.mlm_count),
          .mlm_loss = ratio(sums.mlm_loss_sum, sums.mlm_count),
          .nsp_accuracy = ratio(static_cast<double>(sums.nsp_correct), sums.nsp_count),
          .masked_tokens = sums.mlm_count,
          .seqs = sums.nsp_count};
}

}  // namespace bertha

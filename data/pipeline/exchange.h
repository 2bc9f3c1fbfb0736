#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "data/format/sample.h"
#include "data/pipeline/agreement.h"
#include "data/pipeline/batch.h"
#include "data/pipeline/pipeline.h"
#include "data/pipeline/reader.h"
#include "data/pipeline/transport.h"

namespace bertha {

/// Who trains on what in one step: bins[m * W + r] are the slots of micro-batch m of rank r.
using SlotAssignment = std::vector<std::vector<int64_t>>;

/// Assigns the slots 0 .. G - 1 so that ranks, and the micro-batches of a rank, hold nearly equal
/// token counts: in order of (tokens descending, slot ascending), in snake fashion over all bins
/// (left to right, then right to left, ...). Two ranks differ by at most one longest sequence, and
/// so do two bins. Within a bin lengths fall.
SlotAssignment assign_by_length(std::span<const int64_t> slot_tokens, int num_ranks,
                                int64_t micro_batches);

/// The assignment of ExchangePadding::kOff: rank r has its even slice, cut evenly into
/// micro-batches.
SlotAssignment assign_by_slice(int64_t global_batch_seqs, int num_ranks, int64_t micro_batches);

/// Counts the sequences of bins[m * W + r]; length_of(sequence) is a SampleLength.
template <class Sequence, class LengthOf>
void count_bins(const std::vector<std::vector<Sequence>>& bins, int num_ranks,
                const LengthOf& length_of, StepCounts& counts) {
  std::vector<int64_t> tokens_per_rank(static_cast<size_t>(num_ranks));
  for (size_t bin = 0; bin < bins.size(); ++bin) {
    counts.num_seqs_global += std::ssize(bins[bin]);
    for (const Sequence& sequence : bins[bin]) {
      const SampleLength length = length_of(sequence);
      counts.num_tokens_global += length.tokens;
      counts.num_masked_global += length.masked;
      tokens_per_rank[bin % tokens_per_rank.size()] += length.tokens;
    }
  }
  counts.most_tokens_per_rank = std::ranges::max(tokens_per_rank);
}

/// The samples of one step that a rank trains on. The views point into `sources`.
struct ExchangedStep {
  ExchangedStep() = default;
  ExchangedStep(ExchangedStep&&) = default;
  ExchangedStep& operator=(ExchangedStep&&) = default;

  StepCounts counts;
  std::vector<SampleSet> sources;                      // one per rank
  std::vector<std::vector<SampleView>> micro_batches;  // [micro_batches][b]
};

/// Sends every rank the samples that are assigned to it. Collective: all ranks pass samples of the
/// same step, all G slots once. Every rank computes the same assignment from the lengths, which are
/// summed over ranks; then kLengths moves only what changes owner, kAllGather moves every sample to
/// every rank, and kOff moves nothing (the samples must be the rank's slice).
///
/// A rank of W sends some log2(W) messages of 8 G bytes for the lengths, and with kLengths one to
/// each rank that it has samples for.
///
/// Exact     kLengths and kAllGather give identical results.
/// Errors    as sum_values().
ExchangedStep exchange(const PipelineOptions& options, StepSamples mine, Transport& transport);

/// Takes this rank's place in one exchange to say that it cannot bring samples; the others throw.
/// Throws as they do, except that a leaving rank just returns.
void decline_exchange(const PipelineOptions& options, const Contribution& reason,
                      Transport& transport);

}  // namespace bertha

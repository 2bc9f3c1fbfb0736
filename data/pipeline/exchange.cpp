#include "data/pipeline/exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/base/error.h"

namespace bertha {
namespace {

// A slot's word is 1 << 56 | rank << 32 | tokens << 16 | masked on the rank that brings it, and 0
// on the others: in the sum the highest byte counts the ranks that do.
constexpr int kCountShift = 56;
constexpr int kRankShift = 32;
constexpr int kTokensShift = 16;
constexpr int64_t kRankMask = (int64_t{1} << (kCountShift - kRankShift)) - 1;
constexpr int64_t kLengthMask = (int64_t{1} << kTokensShift) - 1;

/// The slots of the step, known on every rank after the lengths are summed.
struct StepLengths {
  std::vector<std::vector<int64_t>> slots_of_source;  // [W][n]  ascending
  std::vector<int64_t> tokens;                        // [G]
  std::vector<int64_t> masked;                        // [G]

  SampleLength of(int64_t slot) const {
    return {.tokens = tokens[static_cast<size_t>(slot)],
            .masked = masked[static_cast<size_t>(slot)]};
  }
};

StepLengths sum_lengths(const StepSamples& mine, int64_t num_slots, Transport& transport) {
  Contribution words;
  words.values.assign(static_cast<size_t>(num_slots), 0);
  for (size_t i = 0; i < mine.slots.size(); ++i) {
    const int64_t slot = mine.slots[i];
    BERTHA_CHECK(slot >= 0 && slot < num_slots, "slot ", slot, " of ", num_slots);
    const SampleView sample = mine.samples[static_cast<int64_t>(i)];
    words.values[static_cast<size_t>(slot)] +=
        int64_t{1} << kCountShift | int64_t{transport.rank()} << kRankShift |
        static_cast<int64_t>(sample.token_ids.size()) << kTokensShift |
        static_cast<int64_t>(sample.masked_ids.size());
  }
  StepLengths lengths;
  lengths.slots_of_source.resize(static_cast<size_t>(transport.size()));
  for (const int64_t word : sum_values(transport, words, num_slots)) {
    const auto slot = std::ssize(lengths.tokens);
    BERTHA_CHECK(word >> kCountShift == 1, "slot ", slot, " of ", num_slots, " came ",
                 word >> kCountShift, " times");
    lengths.slots_of_source[static_cast<size_t>(word >> kRankShift & kRankMask)].push_back(slot);
    lengths.tokens.push_back(word >> kTokensShift & kLengthMask);
    lengths.masked.push_back(word & kLengthMask);
  }
  return lengths;
}

std::vector<int32_t> owners_of_slots(const SlotAssignment& assignment, int64_t num_slots,
                                     int num_ranks) {
  std::vector<int32_t> owners(static_cast<size_t>(num_slots));
  for (size_t bin = 0; bin < assignment.size(); ++bin) {
    for (const int64_t slot : assignment[bin]) {
      owners[static_cast<size_t>(slot)] =
          static_cast<int32_t>(bin % static_cast<size_t>(num_ranks));
    }
  }
  return owners;
}

/// The samples received from each rank, and the slots that they fill.
struct Arrivals {
  std::vector<SampleSet> sets;              // [W]
  std::vector<std::vector<int64_t>> slots;  // [W][n]
};

/// Sends every rank the samples for which gets(rank, slot) is true, and returns this rank's own
/// samples with the arrivals. `moves`: whether any rank has samples to send.
template <class Gets>
Arrivals move_samples(StepSamples mine, const StepLengths& lengths, const Gets& gets, bool moves,
                      Transport& transport) {
  const auto me = static_cast<size_t>(transport.rank());
  const auto num_ranks = static_cast<size_t>(transport.size());
  Arrivals arrivals{.sets = std::vector<SampleSet>(num_ranks),
                    .slots = std::vector<std::vector<int64_t>>(num_ranks)};
  std::vector<std::vector<std::byte>> outgoing(num_ranks);
  std::vector<std::vector<SampleLength>> incoming(num_ranks);
  std::vector<int64_t> incoming_bytes(num_ranks);
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    if (rank == me) continue;
    std::vector<int64_t> rows;
    for (size_t row = 0; row < mine.slots.size(); ++row) {
      if (gets(rank, mine.slots[row])) rows.push_back(static_cast<int64_t>(row));
    }
    outgoing[rank] = encode_samples(mine.samples, rows);
    for (const int64_t slot : lengths.slots_of_source[rank]) {
      if (!gets(me, slot)) continue;
      arrivals.slots[rank].push_back(slot);
      incoming[rank].push_back(lengths.of(slot));
    }
    incoming_bytes[rank] = payload_bytes(incoming[rank]);
  }
  const auto payloads = moves ? transport.all_to_all_bytes(outgoing, incoming_bytes) : outgoing;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    if (rank != me) arrivals.sets[rank] = decode_samples(payloads[rank], incoming[rank]);
  }
  arrivals.sets[me] = std::move(mine.samples);
  arrivals.slots[me] = std::move(mine.slots);
  return arrivals;
}

/// Views of this rank's samples, micro-batch by micro-batch.
std::vector<std::vector<SampleView>> sort_into_bins(const Arrivals& arrivals,
                                                    const SlotAssignment& assignment,
                                                    int64_t num_slots, Transport& transport) {
  std::vector<std::pair<int32_t, int32_t>> place(static_cast<size_t>(num_slots), {-1, -1});
  for (size_t source = 0; source < arrivals.slots.size(); ++source) {
    for (size_t row = 0; row < arrivals.slots[source].size(); ++row) {
      place[static_cast<size_t>(arrivals.slots[source][row])] = {static_cast<int32_t>(source),
                                                                 static_cast<int32_t>(row)};
    }
  }
  std::vector<std::vector<SampleView>> micro_batches;
  const auto num_ranks = static_cast<size_t>(transport.size());
  for (size_t bin = static_cast<size_t>(transport.rank()); bin < assignment.size();
       bin += num_ranks) {
    std::vector<SampleView>& views = micro_batches.emplace_back();
    for (const int64_t slot : assignment[bin]) {
      const auto [source, row] = place[static_cast<size_t>(slot)];
      BERTHA_CHECK(source >= 0, "slot ", slot, " did not arrive");
      views.push_back(arrivals.sets[static_cast<size_t>(source)][row]);
    }
  }
  return micro_batches;
}

}  // namespace

SlotAssignment assign_by_length(std::span<const int64_t> slot_tokens, int num_ranks,
                                int64_t micro_batches) {
  std::vector<int64_t> slots(slot_tokens.size());
  std::iota(slots.begin(), slots.end(), int64_t{0});
  std::ranges::stable_sort(slots, [&](int64_t a, int64_t b) {
    return slot_tokens[static_cast<size_t>(a)] > slot_tokens[static_cast<size_t>(b)];
  });
  SlotAssignment assignment(static_cast<size_t>(num_ranks * micro_batches));
  for (size_t i = 0; i < slots.size(); ++i) {
    const size_t row = i / assignment.size();
    const size_t column = i % assignment.size();
    assignment[row % 2 == 0 ? column : assignment.size() - 1 - column].push_back(slots[i]);
  }
  return assignment;
}

SlotAssignment assign_by_slice(int64_t global_batch_seqs, int num_ranks, int64_t micro_batches) {
  SlotAssignment assignment;
  for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      const Slice slice = even_slice(global_batch_seqs, rank, num_ranks);
      const Slice part = even_slice(slice.end - slice.begin, micro_batch, micro_batches);
      std::vector<int64_t>& slots =
          assignment.emplace_back(static_cast<size_t>(part.end - part.begin));
      std::iota(slots.begin(), slots.end(), slice.begin + part.begin);
    }
  }
  return assignment;
}

ExchangedStep exchange(const PipelineOptions& options, StepSamples mine, Transport& transport) {
  const int64_t num_slots = options.global_batch_seqs;
  const StepLengths lengths = sum_lengths(mine, num_slots, transport);
  const SlotAssignment assignment =
      options.exchange == ExchangePadding::kOff
          ? assign_by_slice(num_slots, transport.size(), options.micro_batches_per_step)
          : assign_by_length(lengths.tokens, transport.size(), options.micro_batches_per_step);
  ExchangedStep step;
  step.counts.step = mine.step;
  step.counts.epoch = mine.epoch;
  const std::vector<int32_t> owners = owners_of_slots(assignment, num_slots, transport.size());
  const auto gets = [&](size_t rank, int64_t slot) {
    return options.exchange == ExchangePadding::kAllGather ||
           static_cast<size_t>(owners[static_cast<size_t>(slot)]) == rank;
  };
  Arrivals arrivals = move_samples(std::move(mine), lengths, gets,
                                   options.exchange != ExchangePadding::kOff, transport);
  step.micro_batches = sort_into_bins(arrivals, assignment, num_slots, transport);
  step.sources = std::move(arrivals.sets);
  count_bins(
      assignment, transport.size(), [&](int64_t slot) { return lengths.of(slot); }, step.counts);
  return step;
}

void decline_exchange(const PipelineOptions& options, const Contribution& reason,
                      Transport& transport) {
  try {
    sum_values(transport, reason, options.global_batch_seqs);
  } catch (const Error&) {
    if (reason.kind == Contribution::Kind::kFailure) throw;
  }
}

}  // namespace bertha

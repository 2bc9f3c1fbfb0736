#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <map>
#include <utility>

#include "data/format/sample.h"
#include "data/pipeline/exchange.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

// The largest published recipe has 3,472 ranks of 4 sequences.
constexpr int kMaxRanks = 3472;
constexpr int64_t kSeqsPerRank = 4;

double thread_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

/// One rank among others that are not there: it answers as they would. Rank r brings the slots
/// 4 r .. 4 r + 3. `samples` holds those of all slots at least.
class RankOfMany final : public Transport {
 public:
  RankOfMany(int rank, int num_ranks, const SampleSet& samples)
      : rank_(rank), num_ranks_(num_ranks), samples_(samples) {
    std::vector<int64_t> lengths;
    for (int64_t slot = 0; slot < num_slots(); ++slot) {
      const SampleView sample = samples[slot];
      lengths.push_back(std::ssize(sample.token_ids));
      sums_.push_back(int64_t{1} << 56 | (slot / kSeqsPerRank) << 32 |
                      std::ssize(sample.token_ids) << 16 | std::ssize(sample.masked_ids));
    }
    sums_.push_back(0);  // no rank failed
    wanted_ = assign_by_length(lengths, num_ranks, 1)[static_cast<size_t>(rank)];
  }

  StepSamples brings() const {
    StepSamples mine;
    for (int64_t slot = kSeqsPerRank * rank_; slot < kSeqsPerRank * (rank_ + 1); ++slot) {
      mine.slots.push_back(slot);
      mine.samples.append(samples_[slot]);
    }
    return mine;
  }
  int64_t num_slots() const { return kSeqsPerRank * num_ranks_; }
  const std::vector<int64_t>& wanted() const { return wanted_; }
  double ms_of_others() const { return ms_of_others_; }

  int rank() const override { return rank_; }
  int size() const override { return num_ranks_; }
  std::vector<int64_t> all_gather(std::span<const int64_t>) override { return {}; }
  std::vector<int64_t> sum(std::span<const int64_t>) override { return sums_; }
  std::vector<std::vector<std::byte>> all_gather_bytes(std::span<const std::byte>) override {
    return {};
  }
  std::vector<std::vector<std::byte>> all_to_all_bytes(
      std::span<const std::vector<std::byte>> outgoing, std::span<const int64_t>) override {
    const double begin = thread_ms();
    std::vector<std::vector<std::byte>> incoming(outgoing.size());
    std::map<int64_t, std::vector<int64_t>> slots_of_source;
    for (const int64_t slot : wanted_) slots_of_source[slot / kSeqsPerRank].push_back(slot);
    for (auto& [source, slots] : slots_of_source) {
      std::ranges::sort(slots);
      if (source != rank_) incoming[static_cast<size_t>(source)] = encode_samples(samples_, slots);
    }
    ms_of_others_ += thread_ms() - begin;
    return incoming;
  }

 private:
  int rank_;
  int num_ranks_;
  const SampleSet& samples_;
  std::vector<int64_t> sums_;
  std::vector<int64_t> wanted_;
  double ms_of_others_ = 0;
};

/// The least of several exchanges, without what the other ranks do.
double planning_ms(int num_ranks, const SampleSet& samples) {
  RankOfMany transport(num_ranks / 3, num_ranks, samples);
  double least_ms = 1e9;
  for (int repeat = 0; repeat < 10; ++repeat) {
    StepSamples mine = transport.brings();
    const double begin = thread_ms() - transport.ms_of_others();
    const ExchangedStep step =
        exchange({.global_batch_seqs = transport.num_slots()}, std::move(mine), transport);
    least_ms = std::min(least_ms, thread_ms() - transport.ms_of_others() - begin);
    std::vector<int64_t> ids;
    for (const SampleView& sample : step.micro_batches.at(0)) ids.push_back(sample.id);
    EXPECT_EQ(ids, transport.wanted());
  }
  std::cout << "exchange of " << transport.num_slots() << " sequences between " << num_ranks
            << " ranks: planned in " << least_ms << " ms\n";
  return least_ms;
}

TEST(ExchangePlanning, GrowsLittleFasterThanTheNumberOfRanks) {
  const SampleSet samples = example_samples(kSeqsPerRank * kMaxRanks, 7);
  const double of_a_quarter_ms = planning_ms(kMaxRanks / 4, samples);
  // 4 times as many ranks: 4 to 7 times as long, as caches hold less of them, and 16 times if each
  // pair of them took its time.
  EXPECT_LT(planning_ms(kMaxRanks, samples), 10 * of_a_quarter_ms);
}

}  // namespace
}  // namespace bertha

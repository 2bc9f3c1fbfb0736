#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <map>
#include <utility>

#include "data/format/payload.h"
#include "data/pipeline/exchange.h"
#include "tests/data/example_data.h"

namespace bertha {
namespace {

// The largest published recipe: 4 sequences per rank, a step of 14 ms on paper.
constexpr int kRanks = 3472;
constexpr int64_t kSlots = int64_t{4} * kRanks;
constexpr double kStepMs = 14;

double thread_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

/// One rank among others that are not there: it answers as they would. Rank r brings the slots
/// 4 r .. 4 r + 3.
class RankOfMany final : public Transport {
 public:
  RankOfMany(int rank, const SampleSet& samples) : rank_(rank), samples_(samples) {
    std::vector<int64_t> lengths;
    for (int64_t slot = 0; slot < kSlots; ++slot) {
      const SampleView sample = samples[slot];
      lengths.push_back(std::ssize(sample.token_ids));
      sums_.push_back(int64_t{1} << 56 | (slot / 4) << 32 | std::ssize(sample.token_ids) << 16 |
                      std::ssize(sample.masked_ids));
    }
    sums_.push_back(0);  // no rank failed
    wanted_ = assign_by_length(lengths, kRanks, 1)[static_cast<size_t>(rank)];
  }

  StepSamples brings() const {
    StepSamples mine;
    for (int64_t slot = int64_t{4} * rank_; slot < int64_t{4} * (rank_ + 1); ++slot) {
      mine.slots.push_back(slot);
      mine.samples.append(samples_[slot]);
    }
    return mine;
  }
  const std::vector<int64_t>& wanted() const { return wanted_; }
  double ms_of_others() const { return ms_of_others_; }

  int rank() const override { return rank_; }
  int size() const override { return kRanks; }
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
    for (const int64_t slot : wanted_) slots_of_source[slot / 4].push_back(slot);
    for (auto& [source, slots] : slots_of_source) {
      std::ranges::sort(slots);
      if (source != rank_) incoming[static_cast<size_t>(source)] = encode_samples(samples_, slots);
    }
    ms_of_others_ += thread_ms() - begin;
    return incoming;
  }

 private:
  int rank_;
  const SampleSet& samples_;
  std::vector<int64_t> sums_;
  std::vector<int64_t> wanted_;
  double ms_of_others_ = 0;
};

TEST(ExchangePlanning, Of3472RanksTakesLessThanHalfOfTheStepBesideIt) {
  const SampleSet samples = example_samples(kSlots, 7);
  RankOfMany transport(1234, samples);
  double least_ms = 1e9;
  for (int repeat = 0; repeat < 10; ++repeat) {
    StepSamples mine = transport.brings();
    const double begin = thread_ms() - transport.ms_of_others();
    const ExchangedStep step = exchange({.global_batch_seqs = kSlots}, std::move(mine), transport);
    least_ms = std::min(least_ms, thread_ms() - transport.ms_of_others() - begin);
    ASSERT_EQ(step.micro_batches.size(), 1u);
    std::vector<int64_t> ids;
    for (const SampleView& sample : step.micro_batches.front()) ids.push_back(sample.id);
    EXPECT_EQ(ids, transport.wanted());
  }
  std::cout << "planning the exchange of " << kSlots << " sequences: " << least_ms << " ms\n";
  EXPECT_LT(least_ms, kStepMs / 2);
}

}  // namespace
}  // namespace bertha

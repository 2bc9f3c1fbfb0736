#include "data/pipeline/synthetic_steps.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "data/pipeline/bounded_queue.h"
#include "data/pipeline/collate.h"
#include "data/pipeline/exchange.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/base/shortened.h"

namespace bertha {
namespace {

constexpr TokenId kCls = 101;
constexpr TokenId kSep = 102;
constexpr TokenId kMask = 103;
constexpr int64_t kFirstWord = 104;
constexpr int64_t kShortestTokens = 3;  // [CLS] token [SEP]
constexpr int64_t kLongestTokens = 32767;

enum Site : uint32_t { kLengthSite = 1, kTokenSite = 2 };

/// Lengths one after another, from a histogram or all equal.
class LengthSource {
 public:
  LengthSource(const SyntheticSteps& steps, int64_t step)
      : longest_(steps.max_seq_tokens),
        draws_(mixed_seed(steps.seed, static_cast<uint64_t>(step)), 0, kLengthSite) {
    for (const int64_t count : steps.lengths) {
      up_to_.push_back((up_to_.empty() ? 0.0 : up_to_.back()) + static_cast<double>(count));
    }
  }

  int64_t next() {
    if (up_to_.empty()) return longest_;
    const auto found = std::ranges::upper_bound(up_to_, draws_.share() * up_to_.back());
    return std::min<int64_t>(found - up_to_.begin(), longest_);
  }

 private:
  int64_t longest_;
  Draws draws_;
  std::vector<double> up_to_;  // sequences of at most t tokens
};

void check_steps(const SyntheticSteps& steps) {
  if (steps.vocab_size <= kFirstWord) {
    fail(
        ExitCode::kUsage, "model.vocab_size is ", steps.vocab_size,
        ", but synthetic batches use the published ids of [CLS], [SEP] and [MASK]; want more than ",
        kFirstWord, ".");
  }
  const int64_t most = steps.tokens_per_micro_batch;
  if (most != 0 && most < steps.max_seq_tokens) {
    fail(ExitCode::kUsage, most, " tokens per rank, want at least the longest sequence, ",
         steps.max_seq_tokens, ".");
  }
}

/// The lengths of the whole step, by slot.
std::vector<int64_t> draw_lengths(const SyntheticSteps& steps, int64_t step) {
  LengthSource source(steps, step);
  std::vector<int64_t> lengths;
  if (steps.tokens_per_micro_batch == 0) {
    for (int64_t i = 0; i < steps.global_batch_seqs; ++i) lengths.push_back(source.next());
    return lengths;
  }
  // Bins of the assignment differ by one longest sequence at most: with that much above the mean,
  // every bin has enough.
  const int64_t num_bins = steps.num_ranks * steps.micro_batches_per_step;
  const int64_t wanted = num_bins * (steps.tokens_per_micro_batch + steps.max_seq_tokens);
  for (int64_t drawn = 0; drawn < wanted; drawn += lengths.back()) {
    lengths.push_back(source.next());
  }
  return lengths;
}

/// Sequences in slot order, which is random, until `most_tokens` are reached; the last is cut.
std::vector<SyntheticSequence> cut_to(int64_t most_tokens, std::vector<SyntheticSequence> bin) {
  std::ranges::sort(bin, {}, &SyntheticSequence::slot);
  std::vector<SyntheticSequence> kept;
  int64_t room = most_tokens;
  for (const SyntheticSequence& sequence : bin) {
    if (room < kShortestTokens) break;
    kept.push_back({.slot = sequence.slot, .tokens = std::min(sequence.tokens, room)});
    room -= kept.back().tokens;
  }
  return kept;
}

TokenId draw_word(Draws& draws, int64_t vocab_size) {
  // Evenly in the logarithm of the rank: the r-th word has a share near 1 / r.
  const auto words = static_cast<double>(vocab_size - kFirstWord);
  const auto rank = static_cast<int64_t>(std::exp(draws.share() * std::log(words + 1))) - 1;
  return static_cast<TokenId>(kFirstWord +
                              std::clamp<int64_t>(rank, 0, vocab_size - kFirstWord - 1));
}

/// The token at a masked position.
TokenId masked_as(TokenId word, Draws& draws, int64_t vocab_size) {
  const int64_t tenth = draws.below(10);
  if (tenth < 8) return kMask;
  return tenth == 8 ? draw_word(draws, vocab_size) : word;
}

// --- pipelines ---

class SyntheticPipeline final : public Pipeline {
 public:
  SyntheticPipeline(const SyntheticSteps& steps, const SyntheticRun& run, HostAllocator allocate)
      : samples_((run.first_step + run.num_steps) * steps.global_batch_seqs),
        batches_(run.prefetch_steps),
        maker_([this, steps, run, allocate = std::move(allocate)] { make(steps, run, allocate); }) {
  }

  ~SyntheticPipeline() override {
    batches_.close();
    maker_.join();
  }

  std::optional<StepBatch> next() override { return batches_.pop(); }
  int64_t samples_per_epoch() const override { return samples_; }

 private:
  void make(const SyntheticSteps& steps, const SyntheticRun& run, const HostAllocator& allocate) {
    try {
      const int64_t end = run.first_step + run.num_steps;
      for (int64_t step = run.first_step; step < end && batches_.wait_for_room(); ++step) {
        const bool repeats = run.distinct_lengths > 0;
        SyntheticPlan plan =
            plan_synthetic_step(steps, repeats ? step % run.distinct_lengths : step);
        plan.step = step;
        batches_.push(make_synthetic_batch(steps, plan, run.rank, allocate));
      }
      batches_.finish();
    } catch (...) {
      batches_.fail(std::current_exception());
    }
  }

  int64_t samples_;
  BoundedQueue<StepBatch> batches_;
  std::thread maker_;  // last: it uses the queue
};

class RepeatedBatch final : public Pipeline {
 public:
  RepeatedBatch(std::unique_ptr<Pipeline> inner, int64_t first_step, int64_t num_steps)
      : inner_(std::move(inner)), step_(first_step), end_step_(first_step + num_steps) {}

  std::optional<StepBatch> next() override {
    if (step_ >= end_step_) return std::nullopt;
    if (!batch_) batch_ = inner_->next();
    if (!batch_) return std::nullopt;
    StepBatch again = *batch_;  // views of the same memory
    again.step = step_++;
    return again;
  }

  int64_t samples_per_epoch() const override { return inner_->samples_per_epoch(); }

 private:
  std::unique_ptr<Pipeline> inner_;
  std::optional<StepBatch> batch_;
  int64_t step_;
  int64_t end_step_;
};

}  // namespace

LengthHistogram parse_length_histogram(const std::string& text, const std::string& source) {
  LengthHistogram histogram{0};
  std::istringstream lines(text);
  std::optional<size_t> columns;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    std::vector<int64_t> values;
    for (int64_t value = 0; words >> value;) values.push_back(value);
    const bool is_whole = words.eof();
    if (values.empty() && (is_whole || line.find_first_not_of(" \t\r") == line.find('#'))) continue;
    const bool fits =
        is_whole && values.size() <= 2 && columns.value_or(values.size()) == values.size();
    const int64_t length =
        values.size() == 2 ? values.front() : static_cast<int64_t>(histogram.size());
    if (!fits || values.back() < 0 || length < 1 || length > kLongestTokens) {
      fail(ExitCode::kData, source, ":", number, ": found \"", shortened(line),
           "\", want one count on each line, or a length of 1 to ", kLongestTokens,
           " and its count.");
    }
    columns = values.size();
    if (values.back() > 0 && length < kShortestTokens) {
      fail(ExitCode::kData, source, ":", number, ": found sequences of length ", length,
           ", want none shorter than ", kShortestTokens, " tokens.");
    }
    if (length >= std::ssize(histogram)) histogram.resize(static_cast<size_t>(length) + 1, 0);
    int64_t& count = histogram[static_cast<size_t>(length)];
    if (__builtin_add_overflow(count, values.back(), &count)) {
      fail(ExitCode::kData, source, ":", number, ": the counts of length ", length,
           " add up to more than fits into 64 bits, want fewer sequences.");
    }
  }
  if (std::ranges::all_of(histogram, [](int64_t count) { return count == 0; })) {
    fail(ExitCode::kData, source, ": no count above zero, want a histogram of sequence lengths.");
  }
  return histogram;
}

LengthHistogram uniform_lengths(int64_t max_seq_tokens) {
  constexpr int64_t kShortest = 8;
  LengthHistogram lengths(static_cast<size_t>(max_seq_tokens + 1), 1);
  std::fill_n(lengths.begin(), std::min(kShortest, max_seq_tokens), 0);
  return lengths;
}

int64_t masked_tokens_of(const SyntheticSteps& steps, int64_t tokens) {
  return std::clamp<int64_t>(tokens * 15 / 100, 1, steps.max_masked_per_seq);
}

SyntheticPlan plan_synthetic_step(const SyntheticSteps& steps, int64_t step) {
  check_steps(steps);
  const std::vector<int64_t> lengths = draw_lengths(steps, step);
  const SlotAssignment assignment =
      steps.exchange == ExchangePadding::kOff
          ? assign_by_slice(std::ssize(lengths), steps.num_ranks, steps.micro_batches_per_step)
          : assign_by_length(lengths, steps.num_ranks, steps.micro_batches_per_step);
  SyntheticPlan plan;
  plan.step = step;
  for (const std::vector<int64_t>& slots : assignment) {
    std::vector<SyntheticSequence> bin;
    for (const int64_t slot : slots) {
      bin.push_back({.slot = slot, .tokens = lengths[static_cast<size_t>(slot)]});
    }
    if (steps.tokens_per_micro_batch > 0) {
      bin = cut_to(steps.tokens_per_micro_batch, std::move(bin));
    }
    plan.bins.push_back(std::move(bin));
  }
  const auto length_of = [&](const SyntheticSequence& sequence) -> SampleLength {
    return {.tokens = sequence.tokens, .masked = masked_tokens_of(steps, sequence.tokens)};
  };
  count_bins(plan.bins, steps.num_ranks, length_of, plan);
  return plan;
}

void append_synthetic_sample(const SyntheticSteps& steps, const SyntheticSequence& sequence,
                             Draws& draws, SampleSet& set) {
  const int64_t length = sequence.tokens;
  const int64_t first_sep = length / 2;
  std::vector<TokenId> tokens, labels;
  std::vector<int16_t> positions;
  std::vector<int8_t> segments;
  for (int64_t t = 0; t < length; ++t) {
    tokens.push_back(draw_word(draws, steps.vocab_size));
    segments.push_back(t > first_sep ? 1 : 0);
  }
  tokens.front() = kCls;
  if (length > kShortestTokens) tokens[static_cast<size_t>(first_sep)] = kSep;
  tokens.back() = kSep;
  const int64_t num_masked = masked_tokens_of(steps, length);
  for (int64_t m = 0; m < num_masked; ++m) {  // evenly spread between [CLS] and the last [SEP]
    const int64_t position = 1 + m * (length - 2) / num_masked;
    TokenId& token = tokens[static_cast<size_t>(position)];
    positions.push_back(static_cast<int16_t>(position));
    labels.push_back(token);
    token = masked_as(token, draws, steps.vocab_size);
  }
  set.append({.id = sequence.slot,
              .token_ids = tokens,
              .segment_ids = segments,
              .masked_positions = positions,
              .masked_ids = labels,
              .next_sentence_label = static_cast<int8_t>(draws.below(2))});
}

StepBatch make_synthetic_batch(const SyntheticSteps& steps, const SyntheticPlan& plan, int rank,
                               const HostAllocator& allocate) {
  StepBatch batch{plan, {}};
  const uint64_t seed_of_step = mixed_seed(steps.seed, static_cast<uint64_t>(plan.step));
  const auto stride = static_cast<size_t>(steps.num_ranks);
  for (size_t bin = static_cast<size_t>(rank); bin < plan.bins.size(); bin += stride) {
    SampleSet set;
    for (const SyntheticSequence& sequence : plan.bins[bin]) {
      Draws draws(seed_of_step, sequence.slot, kTokenSite);
      append_synthetic_sample(steps, sequence, draws, set);
    }
    std::vector<SampleView> views;
    for (int64_t i = 0; i < set.size(); ++i) views.push_back(set[i]);
    batch.micro_batches.push_back(collate(std::move(views), steps.group_bucket_tokens, allocate));
  }
  return batch;
}

std::unique_ptr<Pipeline> make_synthetic_pipeline(const SyntheticSteps& steps,
                                                  const SyntheticRun& run, HostAllocator allocate) {
  return std::make_unique<SyntheticPipeline>(steps, run, std::move(allocate));
}

std::vector<HostBatch> make_synthetic_eval_batches(SyntheticSteps steps, int64_t batch_seqs,
                                                   int rank, const HostAllocator& allocate) {
  const int64_t most_of_rank = ceil_div(steps.global_batch_seqs, steps.num_ranks);
  steps.micro_batches_per_step = ceil_div(most_of_rank, batch_seqs);
  steps.exchange = ExchangePadding::kOff;
  StepBatch set = make_synthetic_batch(steps, plan_synthetic_step(steps, 0), rank, allocate);
  std::erase_if(set.micro_batches, [](const HostBatch& batch) { return batch.num_seqs == 0; });
  return std::move(set.micro_batches);
}

std::unique_ptr<Pipeline> repeat_first_batch(std::unique_ptr<Pipeline> inner, int64_t first_step,
                                             int64_t num_steps) {
  return std::make_unique<RepeatedBatch>(std::move(inner), first_step, num_steps);
}

}  // namespace bertha

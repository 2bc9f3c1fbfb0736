#include "harness/train/bench_steps.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>

namespace bertha {
namespace {

void add(const SyntheticSteps& steps, int64_t tokens, StepWork& work) {
  ++work.num_seqs;
  work.num_tokens += tokens;
  work.num_masked += masked_tokens_of(steps, tokens);
  work.squared_tokens += tokens * tokens;
}

}  // namespace

BenchWork work_of(const SyntheticSteps& steps, const SyntheticPlan& plan, int rank) {
  BenchWork work;
  const auto ranks = static_cast<size_t>(steps.num_ranks);
  for (size_t bin = 0; bin < plan.bins.size(); ++bin) {
    for (const SyntheticSequence& sequence : plan.bins[bin]) {
      add(steps, sequence.tokens, work.global);
      if (bin % ranks == static_cast<size_t>(rank)) add(steps, sequence.tokens, work.here);
    }
  }
  return work;
}

BatchRows capacity_of(const SyntheticSteps& steps, const std::vector<SyntheticPlan>& plans) {
  BatchRows most{.tokens = steps.tokens_per_micro_batch};
  for (const SyntheticPlan& plan : plans) {
    for (const std::vector<SyntheticSequence>& bin : plan.bins) {
      int64_t tokens = 0;
      int64_t masked = 0;
      for (const SyntheticSequence& sequence : bin) {
        tokens += sequence.tokens;
        masked += masked_tokens_of(steps, sequence.tokens);
      }
      most.tokens = std::max(most.tokens, tokens);
      most.seqs = std::max(most.seqs, std::ssize(bin));
      most.masked = std::max(most.masked, masked);
    }
  }
  return most;
}

std::vector<double> most_over_ranks(Transport& transport, const std::vector<double>& mine) {
  std::vector<int64_t> words;
  for (const double value : mine) words.push_back(std::bit_cast<int64_t>(value));
  const std::vector<int64_t> all = transport.all_gather(words);
  std::vector<double> most = mine;
  for (size_t i = 0; i < all.size(); ++i) {
    double& place = most[i % mine.size()];
    place = std::max(place, std::bit_cast<double>(all[i]));
  }
  return most;
}

BenchSteps::BenchSteps(Session& session, NextBatch next, Around around)
    : session_(session),
      next_(std::move(next)),
      around_(std::move(around)),
      timers_(session.backend->device(), session.backend->stream()),
      profiled_(session.config.log.profile_steps, session.backend->device(),
                session.backend->stream()),
      settings_(step_settings(session.config, *session.world,
                              static_cast<uint64_t>(session.config.train.seed))) {}

void BenchSteps::warm_up(int64_t steps) {
  for (int64_t i = 0; i < steps; ++i) run();
  session_.backend->stream().wait_on_host();
  timers_.take_totals_ms();
  if (session_.timed_ops != nullptr) session_.timed_ops->take_totals();
  session_.world->barrier();
}

std::vector<double> BenchSteps::time(int64_t steps) {
  Stream& stream = session_.backend->stream();
  std::vector<std::unique_ptr<Event>> borders;
  const auto mark = [&] {
    borders.push_back(session_.backend->device().make_event());
    stream.record(*borders.back());
  };
  mark();
  for (int64_t i = 0; i < steps; ++i) {
    run();
    mark();
  }
  profiled_.stop();
  stream.wait_on_host();
  std::vector<double> step_ms;
  for (size_t i = 1; i < borders.size(); ++i) {
    step_ms.push_back(borders[i]->ms_since(*borders[i - 1]));
  }
  return step_ms;
}

void BenchSteps::run() {
  RankBoard& board = session_.world->board();
  board.enter(step_, RunPhase::kWaitForData);
  const StepBatch& batch = next_(step_);
  board.enter(step_, RunPhase::kTrain);
  profiled_.before_step(step_ + 1);
  if (around_) around_(true, step_);
  train_step(
      batch, settings_,
      {.model = session_.model.get(), .optimizer = session_.optimizer.get(), .timers = &timers_});
  if (around_) around_(false, step_);
  profiled_.after_step(++step_);
}

}  // namespace bertha

#include "harness/train/step_gains.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/pipeline/collate.h"
#include "data/pipeline/exchange.h"
#include "data/pipeline/reader.h"
#include "data/random/draws.h"
#include "harness/comm/watchdog.h"
#include "harness/config/keys.h"
#include "harness/config/load.h"
#include "harness/train/bench_steps.h"
#include "harness/train/data_source.h"
#include "harness/train/evaluate.h"
#include "harness/train/probe.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/base/figures.h"
#include "kernels/base/seconds_since.h"

namespace bertha {
namespace {

// A size of batch has its graphs from its third time on.
constexpr int64_t kWarmUpSteps = 2 * kBenchBatches;

enum class Lengths : uint8_t {
  kLive,
  kMost,      // all sequences as long as any may be
  kLongest,   // all as long as the longest of their micro-batch
  kSlices,    // as read, ranks have unlike numbers of tokens
  kAssigned,  // the same sequences, assigned by length
};

enum class Extra : uint8_t {
  kNone,
  kCollate,       // between steps, while the device waits
  kExchange,      // likewise, and the exchange before it
  kReadLoss,      // the host waits for it after every step
  kEvaluateEach,  // in place of steps: evaluations, read after every batch
  kEvaluateOnce,
};

struct Variant {
  std::vector<std::pair<const char*, const char*>> settings = {};  // beside the given ones
  Lengths lengths = Lengths::kLive;
  Extra extra = Extra::kNone;
  bool one_group = false;  // of attention
};

struct Pair {
  const char* row;
  Variant off;
  Variant on = {};
};

/// Pairs that share a model stand side by side.
std::vector<Pair> pairs() {
  const std::vector<std::pair<const char*, const char*>> grouped{{"cuda.attention", "grouped"},
                                                                 {"cuda.graphs", "off"}};
  return {
      {"unpad-most", {.lengths = Lengths::kMost}},
      {"unpad-longest", {.lengths = Lengths::kLongest}},
      {"exchange", {.lengths = Lengths::kSlices}, {.lengths = Lengths::kAssigned}},
      {"exchange-ahead",
       {.lengths = Lengths::kAssigned, .extra = Extra::kExchange},
       {.lengths = Lengths::kAssigned}},
      {"offsets-ahead", {.extra = Extra::kCollate}},
      {"rare-output", {.extra = Extra::kReadLoss}},
      {"eval-on-device", {.extra = Extra::kEvaluateEach}, {.extra = Extra::kEvaluateOnce}},
      {"embedding-gradient",
       {.settings = {{"cuda.embedding_gradient", "atomic"}}},
       {.settings = {{"cuda.embedding_gradient", "sorted"}}}},
      {"gelu-gemms",
       {.settings = {{"cuda.gelu_gemms", "library"}}},
       {.settings = {{"cuda.gelu_gemms", "auto"}}}},
      {"clip-after",
       {.settings = {{"optimizer.clip", "before"}}},
       {.settings = {{"optimizer.clip", "after"}}}},
      {"gemm-plans", {.settings = {{"cuda.gemm_plans", ""}}}},
      {"fp8", {}, {.settings = {{"train.precision", "fp8"}}}},
      {"graphs", {.settings = {{"cuda.graphs", "off"}}}, {.settings = {{"cuda.graphs", "auto"}}}},
      {"attention-persistent",
       {.settings = grouped},
       {.settings = {{"cuda.attention", "auto"}, {"cuda.graphs", "off"}}}},
      {"attention-groups", {.settings = grouped, .one_group = true}, {.settings = grouped}}};
}

Config with_settings(Config config, const Variant& variant) {
  for (const auto& [key, value] : variant.settings) {
    const std::string wrong = assign(*find_key(key), value, config);
    BERTHA_CHECK(wrong.empty(), key, ": ", wrong);
  }
  return config;
}

/// Batches that a variant trains on.
struct Batches {
  SyntheticSteps steps;
  std::vector<SyntheticPlan> plans;
};

/// Every sequence of the plan at the longest of its micro-batch, or at `most` tokens.
void pad(const SyntheticSteps& steps, int64_t most, SyntheticPlan& plan) {
  plan.num_tokens_global = plan.num_masked_global = plan.most_tokens_per_rank = 0;
  std::vector<int64_t> of_rank(static_cast<size_t>(steps.num_ranks), 0);
  for (size_t bin = 0; bin < plan.bins.size(); ++bin) {
    int64_t width = most;
    for (const auto& sequence : plan.bins[bin]) width = std::max(width, sequence.tokens);
    for (SyntheticSequence& sequence : plan.bins[bin]) {
      sequence.tokens = width;
      plan.num_tokens_global += width;
      plan.num_masked_global += masked_tokens_of(steps, width);
      of_rank[bin % of_rank.size()] += width;
    }
  }
  plan.most_tokens_per_rank = std::ranges::max(of_rank);
}

Batches batches_of(const SyntheticSteps& given, const Variant& variant) {
  Batches made{.steps = given, .plans = {}};
  SyntheticSteps& steps = made.steps;
  if (variant.one_group) steps.group_bucket_tokens = steps.max_seq_tokens;
  for (int64_t i = 0; i < kBenchBatches; ++i) made.plans.push_back(plan_synthetic_step(steps, i));
  const SyntheticPlan& first = made.plans.front();
  switch (variant.lengths) {
    case Lengths::kLive:
      break;
    case Lengths::kMost:
    case Lengths::kLongest:
      // As many masked tokens as without padding, which has none.
      steps.max_masked_per_seq = ceil_div(first.num_masked_global, first.num_seqs_global);
      steps.tokens_per_micro_batch = 0;
      for (SyntheticPlan& plan : made.plans) {
        pad(steps, variant.lengths == Lengths::kMost ? steps.max_seq_tokens : 0, plan);
      }
      break;
    case Lengths::kSlices:
    case Lengths::kAssigned:
      // A given number of tokens would even out what the assignment does.
      steps.global_batch_seqs = first.num_seqs_global;
      steps.tokens_per_micro_batch = 0;
      steps.exchange =
          variant.lengths == Lengths::kSlices ? ExchangePadding::kOff : ExchangePadding::kLengths;
      for (SyntheticPlan& plan : made.plans) plan = plan_synthetic_step(steps, plan.step);
      break;
  }
  return made;
}

/// Sequences before they are un-padded.
SampleSet samples_of(const SyntheticSteps& steps, const std::vector<SyntheticSequence>& sequences) {
  SampleSet set;
  for (const SyntheticSequence& sequence : sequences) {
    Draws draws(steps.seed, sequence.slot);
    append_synthetic_sample(steps, sequence, draws, set);
  }
  return set;
}

/// What a rank reads of a step: its slice of the slots.
StepSamples samples_as_read(const SyntheticSteps& steps, const SyntheticPlan& plan, int rank) {
  std::vector<SyntheticSequence> all;
  for (const auto& bin : plan.bins) all.insert(all.end(), bin.begin(), bin.end());
  std::ranges::sort(all, {}, &SyntheticSequence::slot);
  const Slice slice = even_slice(plan.num_seqs_global, rank, steps.num_ranks);
  std::erase_if(all, [&](const SyntheticSequence& sequence) {
    return sequence.slot < slice.begin || sequence.slot >= slice.end;
  });
  StepSamples read{.step = plan.step, .slots = {}, .samples = samples_of(steps, all)};
  for (const SyntheticSequence& sequence : all) read.slots.push_back(sequence.slot);
  return read;
}

/// A variant that is ready to run.
class Runner {
 public:
  Runner(Session& session, const Batches& batches, Extra extra)
      : session_(session),
        extra_(extra),
        transport_(session.world->make_transport()),
        probe_(session.parts(), *session.backend.collectives),
        steps_(
            session, [this](int64_t step) -> const StepBatch& { return batch_of(step); },
            [this](bool is_before, int64_t step) { around(is_before, step); }) {
    const int rank = session.world->rank();
    for (const SyntheticPlan& plan : batches.plans) {
      batches_.push_back(make_synthetic_batch(batches.steps, plan, rank, session.batch_memory));
      if (extra == Extra::kCollate) before_.push_back(collating(batches.steps, plan));
      if (extra == Extra::kExchange) before_.push_back(exchanging(batches.steps, plan));
    }
  }

  void warm_up() {
    if (evaluates()) {
      evaluate_ms();
    } else {
      steps_.warm_up(kWarmUpSteps);
    }
  }
  /// Of each step on the slowest rank: one on every batch, or one evaluation of all of them.
  std::vector<double> turn() {
    if (evaluates()) return most_over_ranks(*transport_, {evaluate_ms()});
    const std::vector<double> ms = steps_.time(kBenchBatches);
    steps_.timers().take_totals_ms();
    return most_over_ranks(*transport_, ms);
  }

 private:
  using Work = std::function<void()>;

  Work collating(const SyntheticSteps& steps, const SyntheticPlan& plan) const {
    std::vector<SampleSet> sets;
    const World& world = *session_.world;
    for (auto bin = static_cast<size_t>(world.rank()); bin < plan.bins.size();
         bin += static_cast<size_t>(world.size())) {
      sets.push_back(samples_of(steps, plan.bins[bin]));
    }
    return [sets = std::move(sets), bucket_tokens = steps.group_bucket_tokens] {
      for (const SampleSet& set : sets) {
        std::vector<SampleView> views;
        for (int64_t i = 0; i < set.size(); ++i) views.push_back(set[i]);
        collate(std::move(views), bucket_tokens, plain_host_allocator());
      }
    };
  }

  Work exchanging(const SyntheticSteps& steps, const SyntheticPlan& plan) const {
    const ExchangeOptions options{.global_batch_seqs = steps.global_batch_seqs,
                                  .micro_batches_per_step = steps.micro_batches_per_step};
    return [this, options, read = samples_as_read(steps, plan, session_.world->rank()),
            bucket_tokens = steps.group_bucket_tokens] {
      ExchangedStep exchanged = exchange(options, read, *transport_);
      for (std::vector<SampleView>& views : exchanged.micro_batches) {
        collate(std::move(views), bucket_tokens, plain_host_allocator());
      }
    };
  }

  const StepBatch& batch_of(int64_t step) {
    StepBatch& batch = batches_[static_cast<size_t>(step % kBenchBatches)];
    batch.step = step;
    return batch;
  }

  bool evaluates() const {
    return extra_ == Extra::kEvaluateEach || extra_ == Extra::kEvaluateOnce;
  }

  double evaluate_ms() {
    using Clock = std::chrono::steady_clock;
    std::vector<HostBatch> batches;
    for (const StepBatch& step : batches_) {
      batches.insert(batches.end(), step.micro_batches.begin(), step.micro_batches.end());
    }
    auto left = std::ssize(batches);
    const Work after_batch = [&] {
      if (--left > 0 && extra_ == Extra::kEvaluateEach) read_stats();  // evaluate() reads the last
    };
    session_.backend.stream->wait_on_host();
    const auto begin = Clock::now();
    evaluate(*session_.model, batches, session_.parts(), *session_.backend.collectives,
             after_batch);
    return 1000 * seconds_since(begin);
  }

  void read_stats() {
    probe_.capture(*session_.model, *session_.optimizer);
    probe_.wait();
  }

  void around(bool is_before, int64_t step) {
    if (!is_before && extra_ == Extra::kReadLoss) read_stats();
    if (!is_before || before_.empty()) return;
    session_.backend.stream->wait_on_host();
    before_[static_cast<size_t>(step % kBenchBatches)]();
  }

  Session& session_;
  Extra extra_;
  std::unique_ptr<Transport> transport_;
  StepProbe probe_;
  std::vector<StepBatch> batches_;  // [kBenchBatches]
  std::vector<Work> before_;        // each of them, while the device waits; [0] = nothing
  BenchSteps steps_;
};

/// The models that a row needs; those of the row before stay where both need them.
class Sessions {
 public:
  Sessions(const Config& config, World& world) : config_(config), world_(world) {}

  /// Frees what neither variant needs before it makes what is missing.
  std::pair<Session*, Session*> get(const Pair& pair, const Batches& off, const Batches& on) {
    const Config off_config = with_settings(config_, pair.off);
    const Config on_config = with_settings(config_, pair.on);
    BatchRows off_rows = capacity_of(off.steps, off.plans);
    BatchRows on_rows = capacity_of(on.steps, on.plans);
    if (to_yaml(off_config) == to_yaml(on_config)) {
      on_rows = {.tokens = std::max(off_rows.tokens, on_rows.tokens),
                 .seqs = std::max(off_rows.seqs, on_rows.seqs),
                 .masked = std::max(off_rows.masked, on_rows.masked)};
      off_rows = on_rows;
    }
    const std::string off_key = key(off_config, off_rows);
    const std::string on_key = key(on_config, on_rows);
    std::erase_if(
        live_, [&](const auto& entry) { return entry.first != off_key && entry.first != on_key; });
    Session* const first = find_or_make(off_key, off_config, off_rows);
    return {first, find_or_make(on_key, on_config, on_rows)};
  }

 private:
  static std::string key(const Config& config, const BatchRows& rows) {
    return concat(to_yaml(config), rows.tokens, " ", rows.seqs, " ", rows.masked);
  }

  Session* find_or_make(const std::string& key, const Config& config, const BatchRows& rows) {
    std::unique_ptr<Session>& session = live_[key];
    if (session != nullptr) return session.get();
    auto made = std::make_unique<Session>(config, world_, SessionOptions{.capacity = rows});
    if (weights_.empty()) weights_ = first_weights(config_, made->table, made->dims).flat;
    made->optimizer->set_weights(weights_.data());
    session = std::move(made);
    return session.get();
  }

  Config config_;
  World& world_;
  std::vector<float> weights_;  // drawn once: they take longer than all else of a model
  std::map<std::string, std::unique_ptr<Session>> live_;
};

}  // namespace

void measure_step_gains(const Config& config, const StepGainsOptions& options, World& world,
                        GainsReport& report) {
  const auto watchdog = make_watchdog(world, config.train.hang_timeout_minutes * 60);
  Config base = config;
  base.checkpoint.init.clear();
  SyntheticSteps synthetic = synthetic_steps(base, world.size());
  synthetic.lengths = options.lengths;
  synthetic.tokens_per_micro_batch = options.tokens_per_rank;
  Sessions sessions(base, world);
  for (const Pair& pair : pairs()) {
    const auto row = std::ranges::find(report.rows, pair.row, &GainRow::name);
    if (row == report.rows.end() || !row->reason.empty()) continue;
    const Batches off_batches = batches_of(synthetic, pair.off);
    const Batches on_batches = batches_of(synthetic, pair.on);
    row->off_tokens = off_batches.plans.front().num_tokens_global;
    row->on_tokens = on_batches.plans.front().num_tokens_global;
    try {
      const auto [off_session, on_session] = sessions.get(pair, off_batches, on_batches);
      report.device = on_session->backend.device->description();
      Runner off(*off_session, off_batches, pair.off.extra);
      Runner on(*on_session, on_batches, pair.on.extra);
      off.warm_up();
      on.warm_up();
      for (int64_t done = 0; done < options.steps; done += kBenchBatches) {
        for (const double ms : off.turn()) row->off_ms.push_back(ms);
        for (const double ms : on.turn()) row->on_ms.push_back(ms);
      }
    } catch (const Error& error) {
      // Every rank refuses a row's settings alike; memory may end on one of them alone.
      const bool has_settings = !pair.off.settings.empty() || !pair.on.settings.empty();
      const bool is_alike = (error.code == ExitCode::kUsage && has_settings) ||
                            (error.code == ExitCode::kMemory && world.size() == 1);
      if (!is_alike) throw;
      row->reason = error.what();
      row->off_ms.clear();
      row->on_ms.clear();
    }
    const bool is_as_given = pair.on.settings.empty() && pair.on.lengths == Lengths::kLive &&
                             pair.on.extra == Extra::kNone;
    if (is_as_given && report.step_ms == 0) {
      report.step_ms = percentile(row->on_ms, 0.5);
      report.tokens_per_step = static_cast<double>(row->on_tokens);
    }
  }
}

}  // namespace bertha

#include "harness/train/step_gains.h"

#include <algorithm>
#include <chrono>
#include <functional>
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
#include "harness/train/precision.h"
#include "harness/train/probe.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/base/figures.h"

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

enum class Needs : uint8_t { kNothing, kGpu, kRanks, kPlans };

struct Pair {
  const char* row;
  Variant off;
  Variant on = {};
  Needs needs = Needs::kNothing;
};

/// Pairs that share a model stand side by side.
std::vector<Pair> pairs() {
  const std::vector<std::pair<const char*, const char*>> grouped{{"cuda.attention", "grouped"},
                                                                 {"cuda.graphs", "off"}};
  return {
      {"unpad-most", {.lengths = Lengths::kMost}},
      {"unpad-longest", {.lengths = Lengths::kLongest}},
      {"exchange", {.lengths = Lengths::kSlices}, {.lengths = Lengths::kAssigned}, Needs::kRanks},
      {"exchange-ahead",
       {.lengths = Lengths::kAssigned, .extra = Extra::kExchange},
       {.lengths = Lengths::kAssigned},
       Needs::kRanks},
      {"offsets-ahead", {.extra = Extra::kCollate}},
      {"rare-output", {.extra = Extra::kReadLoss}},
      {"eval-on-device", {.extra = Extra::kEvaluateEach}, {.extra = Extra::kEvaluateOnce}},
      {"embedding-gradient",
       {.settings = {{"cuda.embedding_gradient", "atomic"}}},
       {.settings = {{"cuda.embedding_gradient", "sorted"}}},
       Needs::kGpu},
      {"gelu-gemms",
       {.settings = {{"cuda.gelu_gemms", "library"}}},
       {.settings = {{"cuda.gelu_gemms", "auto"}}},
       Needs::kGpu},
      {"clip-after",
       {.settings = {{"optimizer.clip", "before"}}},
       {.settings = {{"optimizer.clip", "after"}}}},
      {"gemm-plans", {.settings = {{"cuda.gemm_plans", ""}}}, {}, Needs::kPlans},
      {"fp8", {}, {.settings = {{"train.precision", "fp8"}}}},
      {"graphs",
       {.settings = {{"cuda.graphs", "off"}}},
       {.settings = {{"cuda.graphs", "auto"}}},
       Needs::kGpu},
      {"attention-persistent",
       {.settings = grouped},
       {.settings = {{"cuda.attention", "auto"}, {"cuda.graphs", "off"}}},
       Needs::kGpu},
      {"attention-groups",
       {.settings = grouped, .one_group = true},
       {.settings = grouped},
       Needs::kGpu}};
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

/// The samples of a step that a rank reads, its slice of the slots.
StepSamples samples_as_read(const Batches& batches, size_t step, int rank) {
  const SyntheticPlan& plan = batches.plans[step];
  const Slice slice = even_slice(plan.num_seqs_global, rank, batches.steps.num_ranks);
  std::vector<SyntheticSequence> all;
  for (const auto& bin : plan.bins) all.insert(all.end(), bin.begin(), bin.end());
  std::ranges::sort(all, {}, &SyntheticSequence::slot);
  StepSamples read{.step = plan.step, .slots = {}, .samples = {}};
  for (const SyntheticSequence& sequence : all) {
    if (sequence.slot < slice.begin || sequence.slot >= slice.end) continue;
    Draws draws(batches.steps.seed, sequence.slot);
    read.slots.push_back(sequence.slot);
    append_synthetic_sample(batches.steps, sequence, draws, read.samples);
  }
  return read;
}

/// The sequences of one micro-batch, before they are un-padded.
SampleSet samples_of(const SyntheticSteps& steps, const std::vector<SyntheticSequence>& bin) {
  SampleSet set;
  for (const SyntheticSequence& sequence : bin) {
    Draws draws(steps.seed, sequence.slot);
    append_synthetic_sample(steps, sequence, draws, set);
  }
  return set;
}

/// A variant that is ready to run.
class Runner {
 public:
  Runner(Session& session, const Batches& batches, Extra extra)
      : session_(session),
        extra_(extra),
        transport_(session.world->make_transport()),
        pinned_(session.backend.device->allocate_pinned(static_cast<int64_t>(sizeof(LossStats)))),
        probe_(session.parts(), *session.backend.collectives),
        batches_(made(session, batches)),
        steps_(
            session, [this](int64_t step) -> const StepBatch& { return batch_of(step); },
            [this](bool is_before, int64_t step) { around(is_before, step); }) {
    for (size_t i = 0; i < batches.plans.size(); ++i) {
      const int rank = session.world->rank();
      if (extra == Extra::kCollate) {
        samples_.emplace_back();
        const auto& bins = batches.plans[i].bins;
        for (auto bin = static_cast<size_t>(rank); bin < bins.size();
             bin += static_cast<size_t>(session.world->size())) {
          samples_.back().push_back(samples_of(batches.steps, bins[bin]));
        }
      }
      if (extra == Extra::kExchange) as_read_.push_back(samples_as_read(batches, i, rank));
    }
    exchange_.global_batch_seqs = batches.steps.global_batch_seqs;
    exchange_.micro_batches_per_step = batches.steps.micro_batches_per_step;
    bucket_tokens_ = batches.steps.group_bucket_tokens;
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
  static std::vector<StepBatch> made(Session& session, const Batches& batches) {
    std::vector<StepBatch> all;
    for (const SyntheticPlan& plan : batches.plans) {
      all.push_back(
          make_synthetic_batch(batches.steps, plan, session.world->rank(), session.batch_memory));
    }
    return all;
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
    Bert& model = *session_.model;
    session_.backend.stream->wait_on_host();
    const auto begin = Clock::now();
    model.reset_stats();
    for (const HostBatch& batch : batches) {
      model.upload(batch);
      model.forward_eval();
      if (extra_ == Extra::kEvaluateEach) read_stats();
    }
    if (extra_ == Extra::kEvaluateOnce) read_stats();
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  void read_stats() {
    Collectives& collectives = *session_.backend.collectives;
    sum_stats_over_ranks(*session_.model, session_.parts(), collectives);
    session_.backend.device->copy(collectives.stream(), pinned_.data(),
                                  session_.model->stats().data, pinned_.bytes());
    collectives.stream().wait_on_host();
    session_.model->reset_stats();
  }

  void around(bool is_before, int64_t step) {
    const auto i = static_cast<size_t>(step % kBenchBatches);
    if (!is_before) {
      if (extra_ != Extra::kReadLoss) return;
      probe_.capture(*session_.model, *session_.optimizer);
      probe_.wait();
    } else if (extra_ == Extra::kCollate) {
      session_.backend.stream->wait_on_host();
      for (const SampleSet& set : samples_[i]) {
        std::vector<SampleView> views;
        for (int64_t s = 0; s < set.size(); ++s) views.push_back(set[s]);
        collate(std::move(views), bucket_tokens_, plain_host_allocator());
      }
    } else if (extra_ == Extra::kExchange) {
      session_.backend.stream->wait_on_host();
      ExchangedStep exchanged = exchange(exchange_, as_read_[i], *transport_);
      for (std::vector<SampleView>& views : exchanged.micro_batches) {
        collate(std::move(views), bucket_tokens_, plain_host_allocator());
      }
    }
  }

  Session& session_;
  Extra extra_;
  std::unique_ptr<Transport> transport_;
  Buffer pinned_;  // LossStats
  StepProbe probe_;
  std::vector<StepBatch> batches_;  // [kBenchBatches]
  BenchSteps steps_;
  std::vector<std::vector<SampleSet>> samples_;  // [batches][micro-batches]
  std::vector<StepSamples> as_read_;             // [batches]
  ExchangeOptions exchange_;
  int64_t bucket_tokens_ = 0;
};

/// The models that a row needs; those of the row before stay where both need them.
class Sessions {
 public:
  Sessions(const Config& config, World& world) : config_(config), world_(world) {}

  /// Frees what neither variant needs before it makes what is missing.
  std::pair<Session*, Session*> get(const Pair& pair, const Batches& off, const Batches& on) {
    const std::string off_text = to_yaml(with_settings(config_, pair.off));
    const std::string on_text = to_yaml(with_settings(config_, pair.on));
    BatchRows rows = capacity_of(off.steps, off.plans);
    BatchRows on_rows = capacity_of(on.steps, on.plans);
    if (off_text == on_text) {
      rows = {.tokens = std::max(rows.tokens, on_rows.tokens),
              .seqs = std::max(rows.seqs, on_rows.seqs),
              .masked = std::max(rows.masked, on_rows.masked)};
      on_rows = rows;
    }
    const std::string off_key = key(off_text, rows);
    const std::string on_key = key(on_text, on_rows);
    std::erase_if(live_,
                  [&](const Live& live) { return live.key != off_key && live.key != on_key; });
    Session* const first = find_or_make(off_key, pair.off, rows);
    return {first, find_or_make(on_key, pair.on, on_rows)};
  }

 private:
  struct Live {
    std::string key;
    std::unique_ptr<Session> session;
  };

  static std::string key(const std::string& config, const BatchRows& rows) {
    return concat(config, rows.tokens, " ", rows.seqs, " ", rows.masked);
  }

  Session* find_or_make(const std::string& wanted, const Variant& variant, const BatchRows& rows) {
    const auto found = std::ranges::find(live_, wanted, &Live::key);
    if (found != live_.end()) return found->session.get();
    auto made = std::make_unique<Session>(with_settings(config_, variant), world_,
                                          SessionOptions{.capacity = rows});
    if (weights_.empty()) weights_ = first_weights(config_, made->table, made->dims).flat;
    made->optimizer->set_weights(weights_.data());
    live_.push_back({wanted, std::move(made)});
    return live_.back().session.get();
  }

  Config config_;
  World& world_;
  std::vector<float> weights_;  // drawn once: they take longer than all else of a model
  std::vector<Live> live_;
};

std::string why_not(const Pair& pair, const Config& config, const World& world, bool on_gpu) {
  if (pair.needs == Needs::kGpu && !on_gpu) return "needs a GPU";
  if (pair.needs == Needs::kRanks && world.size() < 2) return "needs 2 ranks or more";
  if (pair.needs == Needs::kPlans && (!on_gpu || config.cuda.gemm_plans.empty())) {
    return "needs a GPU and a file of plans, cuda.gemm_plans";
  }
  const bool is_fp8 = has_fp8_gemms(config.train);
  return std::string(pair.row) == "fp8" && is_fp8 ? "train.precision is fp8 already" : "";
}

}  // namespace

void measure_step_gains(const Config& config, const StepGainsOptions& options, World& world,
                        GainsReport& report) {
  const auto watchdog = make_watchdog(world, config.train.hang_timeout_minutes * 60);
  Config base = config;
  base.checkpoint.init.clear();
  SyntheticSteps synthetic = synthetic_steps(base, world.size());
  synthetic.lengths = options.lengths;
  synthetic.tokens_per_micro_batch = options.tokens_per_rank;
  const bool on_gpu = choose_backend(base.train, world).kind == BackendChoice::Kind::kCuda;
  Sessions sessions(base, world);
  for (const Pair& pair : pairs()) {
    const auto row = std::ranges::find(report.rows, pair.row, &GainRow::name);
    if (row == report.rows.end()) continue;
    row->reason = why_not(pair, base, world, on_gpu);
    if (!row->reason.empty()) continue;
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

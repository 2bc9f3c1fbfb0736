#include "harness/train/step_bench.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "data/pipeline/synthetic_steps.h"
#include "harness/comm/energy_meter.h"
#include "harness/comm/watchdog.h"
#include "harness/model/flops.h"
#include "harness/report/device_peak.h"
#include "harness/train/data_source.h"
#include "harness/train/precision.h"
#include "harness/train/probe.h"
#include "harness/train/profiled_steps.h"
#include "harness/train/session.h"
#include "harness/train/step.h"
#include "harness/train/timers.h"

namespace bertha {
namespace {

/// Number of steps with different lengths. Few, so that their graphs are recorded in the warm-up,
/// as they are for most steps of a long run.
constexpr int64_t kBenchBatches = 4;

void add(const SyntheticSteps& steps, const std::vector<SyntheticSequence>& bin, StepWork& work) {
  for (const SyntheticSequence& sequence : bin) {
    ++work.num_seqs;
    work.num_tokens += sequence.tokens;
    work.num_masked += masked_tokens_of(steps, sequence.tokens);
    work.squared_tokens += sequence.tokens * sequence.tokens;
  }
}

/// The largest micro-batch of any rank, if the number of sequences follows from the lengths.
BatchRows capacity_of(const SyntheticSteps& steps, const std::vector<SyntheticPlan>& plans) {
  BatchRows most{.tokens = steps.tokens_per_micro_batch, .seq_tokens = steps.max_seq_tokens};
  for (const SyntheticPlan& plan : plans) {
    for (const std::vector<SyntheticSequence>& bin : plan.bins) {
      StepWork work;
      add(steps, bin, work);
      most.tokens = std::max(most.tokens, work.num_tokens);
      most.seqs = std::max(most.seqs, work.num_seqs);
      most.masked = std::max(most.masked, work.num_masked);
    }
  }
  return most;
}

/// The elementwise maximum over all ranks. All ranks call it.
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

/// Training steps of one rank on fresh batches, timed.
class BenchSteps {
 public:
  BenchSteps(Session& session, Pipeline& pipeline)
      : session_(session),
        pipeline_(pipeline),
        timers_(session.backend->device(), session.backend->stream()),
        profiled_(session.config.log.profile_steps, session.backend->device(),
                  session.backend->stream()),
        settings_(step_settings(session.config, *session.world,
                                static_cast<uint64_t>(session.config.train.seed))) {}

  /// Blocks: the host, until the steps have run; then timers and counters are reset.
  void warm_up(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) run();
    session_.backend->stream().wait_on_host();
    timers_.take_totals_ms();
    if (session_.timed_ops != nullptr) session_.timed_ops->take_totals();
    session_.world->barrier();
  }

  /// Device milliseconds of each step. Blocks: the host, at the end.
  std::vector<double> time(int64_t steps) {
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

  PhaseTimers& timers() { return timers_; }

 private:
  void run() {
    RankBoard& board = session_.world->board();
    board.enter(step_, RunPhase::kWaitForData);
    batch_ = pipeline_.next();
    board.enter(step_, RunPhase::kTrain);
    profiled_.before_step(step_ + 1);
    train_step(
        *batch_, settings_,
        {.model = session_.model.get(), .optimizer = session_.optimizer.get(), .timers = &timers_});
    profiled_.after_step(++step_);
  }

  Session& session_;
  Pipeline& pipeline_;
  PhaseTimers timers_;
  ProfiledSteps profiled_;
  StepSettings settings_;
  std::optional<StepBatch> batch_;  // the device may still read it
  int64_t step_ = 0;
};

/// Describes the timed steps, whose lengths follow `plans`. Their work is the mean over them.
void describe(const Session& session, const StepBenchOptions& options,
              const SyntheticSteps& synthetic, const std::vector<SyntheticPlan>& plans,
              BenchSteps& timed, StepBenchReport& report) {
  const auto steps = static_cast<double>(options.steps);
  const auto ranks = static_cast<size_t>(session.world->size());
  StepWork here;  // this rank
  for (int64_t i = 0; i < options.steps; ++i) {
    const SyntheticPlan& plan =
        plans[static_cast<size_t>((options.warmup_steps + i) % kBenchBatches)];
    StepWork global;  // all ranks
    for (size_t bin = 0; bin < plan.bins.size(); ++bin) {
      add(synthetic, plan.bins[bin], global);
      const bool is_own = bin % ranks == static_cast<size_t>(session.world->rank());
      if (is_own) add(synthetic, plan.bins[bin], here);
    }
    report.seqs_global += static_cast<double>(global.num_seqs) / steps;
    report.tokens_global += static_cast<double>(global.num_tokens) / steps;
    report.masked_global += static_cast<double>(global.num_masked) / steps;
    report.most_tokens_per_rank += static_cast<double>(plan.most_tokens_per_rank) / steps;
    report.model_flops_global += model_flops_per_step(session.dims, global) / steps;
  }
  report.phase_ms = timed.timers().take_totals_ms();
  for (double& ms : report.phase_ms) ms /= steps;
  if (session.timed_ops == nullptr) return;
  // Scores and context, 2 per multiply-add; backward has twice as many.
  const double attention_flops = 4.0 * static_cast<double>(session.dims.L * session.dims.H) *
                                 static_cast<double>(here.squared_tokens);
  for (OperationTime& time : session.timed_ops->take_totals()) {
    if (time.name == "attention_fwd") time.flops = attention_flops;
    if (time.name == "attention_bwd") time.flops = 2 * attention_flops;
    for (double* sum : {&time.calls, &time.ms, &time.flops, &time.bytes}) *sum /= steps;
    report.operations.push_back(std::move(time));
  }
}

}  // namespace

StepBenchReport bench_step(const Config& config, const StepBenchOptions& options, World& world) {
  const auto watchdog = make_watchdog(world, config.train.hang_timeout_minutes * 60);
  SyntheticSteps synthetic = synthetic_steps(config, world.size());
  synthetic.lengths = options.lengths;
  synthetic.tokens_per_micro_batch = options.tokens_per_rank;
  std::vector<SyntheticPlan> plans;
  for (int64_t i = 0; i < kBenchBatches; ++i) plans.push_back(plan_synthetic_step(synthetic, i));
  SessionOptions made{.time_operations = options.by_operation};
  if (options.tokens_per_rank > 0) made.capacity = capacity_of(synthetic, plans);
  Session session(config, world, made);
  session.initialize_weights();
  const std::unique_ptr<Pipeline> pipeline =
      make_synthetic_pipeline(synthetic,
                              {.rank = world.rank(),
                               .num_steps = options.warmup_steps + options.steps,
                               .prefetch_steps = config.data.prefetch_steps,
                               .distinct_lengths = kBenchBatches},
                              session.batch_memory);
  BenchSteps steps(session, *pipeline);
  steps.warm_up(options.warmup_steps);
  const Device& device = session.backend->device();
  const int64_t warm_bytes = device.used_memory_bytes();
  const EnergyMeter energy(session.gpu.bus_id, world);
  const std::vector<double> step_ms = steps.time(options.steps);
  const double joules = energy.joules().value_or(0);
  const int64_t used_bytes = std::max(warm_bytes, device.used_memory_bytes());

  const std::unique_ptr<Transport> transport = world.make_transport();
  StepBenchReport report{
      .model = config.model.name,
      .gelu = config.model.gelu,
      .device = device.description(),
      .kernels = session.kernels,
      .precision = precision_text(session.io, config.train),
      .ranks = world.size(),
      .micro_batches = config.train.accumulation_steps,
      .warmup_steps = options.warmup_steps,
      .step_ms = most_over_ranks(*transport, step_ms),
      .peak_flops_per_second = peak_flops(device.description(), session.io),
      .peak_memory_bytes = static_cast<int64_t>(
          most_over_ranks(*transport, {static_cast<double>(used_bytes)}).front()),
      .total_memory_bytes = device.total_memory_bytes(),
      .joules_global = joules / static_cast<double>(step_ms.size())};
  describe(session, options, synthetic, plans, steps, report);
  StepProbe probe(session.parts(), session.backend->collectives());
  probe.capture(*session.model, *session.optimizer);
  const StepScalars last = probe.wait();
  report.loss =
      last.stats.mlm_loss_sum / static_cast<double>(last.stats.mlm_count) +
      config.train.nsp_weight * last.stats.nsp_loss_sum / static_cast<double>(last.stats.nsp_count);
  report.skipped_updates = last.lamb.skipped_steps;
  return report;
}

}  // namespace bertha

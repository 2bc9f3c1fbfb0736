#include "harness/train/step_bench.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "data/pipeline/synthetic_pipeline.h"
#include "harness/comm/energy_meter.h"
#include "harness/comm/watchdog.h"
#include "harness/report/device_peak.h"
#include "harness/train/bench_steps.h"
#include "harness/train/data_source.h"
#include "harness/train/precision.h"
#include "harness/train/probe.h"
#include "harness/train/session.h"

namespace bertha {
namespace {

SessionOptions session_options(const StepBenchOptions& options, const SyntheticSteps& steps,
                               const std::vector<SyntheticPlan>& plans) {
  SessionOptions made{.time_operations = options.by_operation};
  if (options.tokens_per_rank > 0) made.capacity = capacity_of(steps, plans);
  return made;
}

/// Of the timed steps, whose lengths follow `plans`. Its work is the mean over them.
void describe(const Session& session, const StepBenchOptions& options,
              const SyntheticSteps& synthetic, const std::vector<SyntheticPlan>& plans,
              BenchSteps& timed, StepBenchReport& report) {
  const auto steps = static_cast<double>(options.steps);
  StepWork here;
  for (int64_t i = 0; i < options.steps; ++i) {
    const SyntheticPlan& plan =
        plans[static_cast<size_t>((options.warmup_steps + i) % kBenchBatches)];
    const BenchWork work = work_of(synthetic, plan, session.world->rank());
    report.seqs_global += static_cast<double>(work.global.num_seqs) / steps;
    report.tokens_global += static_cast<double>(work.global.num_tokens) / steps;
    report.masked_global += static_cast<double>(work.global.num_masked) / steps;
    report.most_tokens_per_rank += static_cast<double>(plan.most_tokens_per_rank) / steps;
    report.model_flops_global += model_flops_per_step(session.dims, work.global) / steps;
    here.squared_tokens += work.here.squared_tokens;
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
    report.operations.push_back({.name = time.name,
                                 .calls = static_cast<double>(time.calls) / steps,
                                 .ms = time.ms / steps,
                                 .flops = time.flops / steps,
                                 .bytes = time.bytes / steps});
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
  Session session(config, world, session_options(options, synthetic, plans));
  session.initialize_weights();
  const std::unique_ptr<Pipeline> pipeline =
      make_synthetic_pipeline(synthetic,
                              {.rank = world.rank(),
                               .num_steps = options.warmup_steps + options.steps,
                               .prefetch_steps = config.data.prefetch_steps,
                               .distinct_lengths = kBenchBatches},
                              session.batch_memory);
  std::optional<StepBatch> batch;
  BenchSteps steps(session, [&](int64_t) -> const StepBatch& {
    batch = pipeline->next();
    return *batch;
  });
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
      .gelu = std::string(word_of(config.model.gelu)),
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

#include "harness/plan/plan_report.h"

#include <ranges>

#include "harness/config/check.h"
#include "harness/config/keys.h"
#include "harness/model/fp8_state.h"
#include "harness/report/text_format.h"

namespace bertha {
namespace {

constexpr size_t kColumns = 30;

std::string scaled_count(int64_t value) { return scaled_text(static_cast<double>(value)); }

void add_model(const PlanFacts& facts, Report& report) {
  const ModelConfig& model = facts.request.config.model;
  report.line("model {}", model.name);
  report.row("shape", "{} layers, hidden {}, {} heads, feed-forward {}, vocabulary {}",
             model.layers, model.hidden, model.heads, model.feed_forward, model.vocab_size);
  report.row("parameters", "{}", figure("parameters", facts.cost.parameters, grouped_text));
}

std::string what_would_fit(const PlanRequest& request, const MemoryFit& fit) {
  const int64_t seqs = fit.seqs_per_micro_batch;
  if (seqs == 0) {
    return "does not fit, not even with one sequence per micro-batch; use more ranks or a smaller "
           "model";
  }
  std::string advice;
  if (fit.accumulation_steps == 0) {
    advice = "change train.global_batch_seqs or the ranks";
  } else if (fit.accumulation_steps != request.config.train.accumulation_steps) {
    advice = fmt::format("set train.accumulation_steps to {}", fit.accumulation_steps);
  }
  if (request.config.eval.batch_seqs > seqs) {
    advice += fmt::format("{}eval.batch_seqs to {}", advice.empty() ? "set " : ", and ", seqs);
  }
  return fmt::format("does not fit; {} per micro-batch would: {}", counted_text(seqs, "sequence"),
                     advice);
}

void add_memory(const PlanFacts& facts, Report& report) {
  const CostPlan& cost = facts.cost;
  report.line(
      "\nmemory per rank ({} weights and activations, {} per micro-batch, all at full length)",
      name(facts.request.io),
      figure("seqs_per_micro_batch", cost.seqs_per_micro_batch, counted("sequence")));
  if (facts.request.fp8) {
    report.row("fp8 GEMMs", "{}", fp8_gemms(make_dims(facts.request.config.model)));
  }
  for (const MemoryClass& part : cost.memory) {
    report.row(part.name, "{}",
               figure("memory_bytes_by_class/" + part.name, part.bytes, bytes_text));
  }
  report.row("together", "{}", figure("memory_bytes", cost.memory_bytes, bytes_text));
  if (!facts.fit) return;
  report.put("fits", facts.fits());
  report.put("most_seqs_per_micro_batch", facts.fit->seqs_per_micro_batch);
  const double part =
      static_cast<double>(cost.memory_bytes) / static_cast<double>(facts.memory_limit_bytes);
  report.row("of " + facts.memory_limit, "{:.1f}%: {}", 100 * part,
             facts.fits() ? fmt::format("fits; up to {} per micro-batch would",
                                        counted_text(facts.fit->seqs_per_micro_batch, "sequence"))
                          : what_would_fit(facts.request, *facts.fit));
}

void add_work(const PlanFacts& facts, Report& report) {
  const CostPlan& cost = facts.cost;
  const Config& config = facts.request.config;
  report.line("\nwork");
  report.row("steps", "{} of {} sequences on {}, {} per step",
             figure("steps", cost.run.last_step, grouped_text), config.train.global_batch_seqs,
             counted_text(facts.request.ranks, "rank"),
             counted_text(config.train.accumulation_steps, "micro-batch"));
  report.row("samples", "{}", figure("samples", cost.run.last_samples, grouped_text));
  if (facts.num_samples > 0) {
    report.row("epochs", "{:.2f} of {} sequences",
               static_cast<double>(cost.run.last_samples) / static_cast<double>(facts.num_samples),
               grouped_text(facts.num_samples));
  } else {
    report.row("epochs", "unknown: data.train {}",
               config.data.train.empty() ? "is not set" : "has no manifest.json yet");
  }
  report.row("mean length", "{:.1f} tokens: {}", facts.request.mean_seq_tokens,
             facts.lengths_source);
  report.row("FLOPs per sequence", "{} (2 per multiply-add, backward twice forward)",
             figure("flops_per_seq", cost.flops_per_seq, scaled_count));
  report.row("FLOPs of the run", "{}", figure("flops_per_run", cost.flops_per_run, exponent_text));
}

void add_schedule(const PlanFacts& facts, Report& report) {
  const Config& config = facts.request.config;
  const RunPlan& run = facts.cost.run;
  report.line("\nschedule");
  const double end = config.optimizer.final_fraction;
  report.row("learning rate", "{}, {} warm-up steps from step {}, {}",
             value_text(*find_key("optimizer.base_learning_rate"), config),
             config.optimizer.warmup_steps, config.optimizer.start_warmup_step,
             config.optimizer.schedule == Schedule::kConstant
                 ? std::string("then constant")
                 : fmt::format("{} to {} at step {}", word_of(config.optimizer.schedule),
                               end > 0 ? fmt::format("{:g} of it", end) : "zero",
                               grouped_text(run.schedule_steps)));
  for (const std::string& remark : config_remarks(config)) report.row("note", "{}", remark);
  if (config.train.target_accuracy > 0) {
    report.row("target", "masked-token accuracy {:.3f}", config.train.target_accuracy);
  } else {
    report.row("target", "none: training ends at the last step");
  }
  report.row("evaluations", "{}, every {} samples from {}{}", figure("evals", run.num_evals()),
             grouped_text(run.eval_interval_samples), grouped_text(run.eval_start_samples),
             run.has_eval_at_end() ? " and at the end" : "");
  constexpr int64_t kShown = 40;
  std::vector<PlannedEval> evals = run.evals;
  if (run.has_eval_at_end()) evals.push_back({.samples = run.last_samples, .step = run.last_step});
  for (const PlannedEval& eval : evals | std::views::take(kShown)) {
    report.row("", "step {}  samples {}", grouped_text(eval.step), grouped_text(eval.samples));
  }
  const int64_t more = std::ssize(evals) - kShown;
  if (more > 0) report.row("", "... and {} more", more);
}

void add_time(const PlanFacts& facts, Report& report) {
  report.line("\ntime");
  if (!facts.time) {
    report.line("  not estimated: only 16-bit and fp8 steps on H200s have been measured");
    return;
  }
  const TimeEstimate& time = *facts.time;
  report.row("at", "{}FLOP/s of each H200 in {}, as BERT-large with 24,576 tokens per step reaches",
             scaled_text(time.flops_per_second), facts.request.fp8 ? "fp8" : "16 bits");
  report.row("step", "{:.1f} ms", figure("time/step_ms", time.step_ms));
  report.row("sequences/s", "{}",
             figure("time/seqs_per_second", time.seqs_per_second,
                    [](double rate) { return grouped_text(static_cast<int64_t>(rate)); }));
  report.row("run", "{} to the last step, evaluations included",
             figure("time/seconds", time.seconds, duration_text));
  report.row("note", "smaller steps and communication between nodes take longer: bertha scale");
}

void add_missing(const PlanFacts& facts, Report& report) {
  report.line("\nmissing");
  if (facts.missing.empty()) report.line("  nothing");
  for (const std::string& sentence : facts.missing) report.line("  {}", sentence);
  report.put("missing", facts.missing);
}

}  // namespace

Report report_of(const PlanFacts& facts) {
  Report report(kColumns);
  add_model(facts, report);
  add_memory(facts, report);
  add_work(facts, report);
  add_schedule(facts, report);
  add_time(facts, report);
  add_missing(facts, report);
  report.put("eval_seqs", facts.eval_seqs);
  report.put("token_length_histogram", facts.lengths);
  Config config = facts.request.config;
  ReportJson keys;
  for (const Key& key : config_keys()) {
    std::visit([&](const auto& value) { keys[std::string(key.path)] = *value; }, key.field(config));
  }
  report.put("config", keys);
  return report;
}

}  // namespace bertha

#include "harness/plan/plan_report.h"

#include "harness/report/text_format.h"
#include "kernels/base/error.h"

namespace bertha {
namespace {

std::string count_text(double value) { return grouped_text(static_cast<int64_t>(value)); }

std::string row(const std::string& name, const std::string& value) {
  return fact_line(name, value, kPlanColumns);
}

TextTable parts_table(const StepTime& step) {
  TextTable table{{"  part", "ms", "hidden", "of the step"}};
  for (const StepPart& part : step.parts) {
    table.push_back({"  " + part.name, fixed_text(part.ms, 2), fixed_text(part.hidden_ms, 2),
                     fixed_text(100 * part.exposed_ms() / step.step_ms, 1) + " %"});
  }
  table.push_back({"  step", fixed_text(step.step_ms, 2), "", ""});
  return table;
}

ReportJson speed_json(const SpeedPlan& plan) {
  ReportJson parts = ReportJson::array();
  for (const StepPart& part : plan.step.parts) {
    parts.push_back({{"name", part.name}, {"ms", part.ms}, {"hidden_ms", part.hidden_ms}});
  }
  return {{"step_ms", plan.step.step_ms},
          {"parts", parts},
          {"bounded_by", plan.step.bounded_by},
          {"tokens_per_rank", plan.step.tokens_per_rank},
          {"seqs_per_second", plan.step.seqs_per_second},
          {"to_target", plan.run.to_target},
          {"samples", plan.run.samples},
          {"steps", plan.run.steps},
          {"evals", plan.run.evals},
          {"eval_seconds", plan.run.eval_seconds},
          {"seconds", plan.run.seconds},
          {"most_megajoules", plan.run.megajoules}};
}

}  // namespace

std::string speed_text(const SpeedPlan& plan, const SpeedRequest& request) {
  const Cluster& cluster = request.cluster;
  const StepTime& step = plan.step;
  const RunTime& run = plan.run;
  const std::string nodes =
      cluster.nodes() == 1 ? ""
                           : concat(" in ", cluster.nodes(), " nodes on ", cluster.network.name);
  const std::string seconds =
      run.seconds < 100 ? fixed_text(run.seconds, 1) + " s" : duration_text(run.seconds);
  return concat(
      "\ntime, predicted from measured steps: ", cluster.ranks, " H200", nodes, ", ",
      request.precision == GemmPrecision::kFp8 ? "fp8" : "16 bits", ", ",
      count_text(step.tokens_per_rank), " tokens per GPU and step\n",
      aligned_text(parts_table(step), CellAlignment::kRight), row("bounded by", step.bounded_by),
      row("sequences/s",
          concat(count_text(step.seqs_per_second), ", ",
                 count_text(step.seqs_per_second / static_cast<double>(cluster.ranks)),
                 " per GPU")),
      row("evaluation", fixed_text(run.eval_seconds, 2) + " s"),
      row("initialization", "not counted below; it took 6 s on two GPUs"),
      row(run.to_target ? "to the target" : "to the last step",
          concat(seconds, ": ", grouped_text(run.samples), " samples",
                 run.to_target ? ", as the benchmark's reference needs" : "", ", ", run.evals,
                 " evaluations")),
      row("energy of the GPUs", concat("at most ", fixed_text(run.megajoules, 2), " MJ")));
}

ReportJson plan_json(const PlanFacts& facts) {
  ReportJson memory;
  for (const MemoryClass& part : facts.cost.memory) memory[part.name] = part.bytes;
  ReportJson json{{"parameters", facts.cost.parameters},
                  {"seqs_per_micro_batch", facts.cost.seqs_per_micro_batch},
                  {"memory_bytes", facts.cost.memory_bytes},
                  {"memory_bytes_by_class", memory},
                  {"flops_per_seq", facts.cost.flops_per_seq},
                  {"flops_per_run", facts.cost.flops_per_run},
                  {"steps", facts.cost.run.last_step},
                  {"samples", facts.cost.run.last_samples},
                  {"evals", facts.cost.run.num_evals()}};
  if (facts.fit) {
    json["fits"] = facts.fits();
    json["most_seqs_per_micro_batch"] = facts.fit->seqs_per_micro_batch;
  }
  if (facts.speed) json["time"] = speed_json(*facts.speed);
  json["missing"] = facts.missing;
  return json;
}

}  // namespace bertha

#include "harness/plan/plan_report.h"

namespace bertha {

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
  if (facts.time) {
    json["time"] = {{"step_ms", facts.time->step_ms},
                    {"seqs_per_second", facts.time->seqs_per_second},
                    {"seconds", facts.time->seconds}};
  }
  json["missing"] = facts.missing;
  return json;
}

}  // namespace bertha

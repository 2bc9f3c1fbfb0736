#include "harness/cli/command.h"
#include "harness/cli/options.h"
#include "harness/comm/watchdog.h"
#include "harness/doctor/diagnosis_report.h"
#include "harness/doctor/measure.h"

namespace bertha {
namespace {

/// Limit of a single measurement, generous for the slowest node that a job should use.
constexpr double kMaxSilenceSeconds = 60;

struct DoctorOptions {
  std::string json;
  MeasureOptions measure;
};

ExitCode report(const std::vector<RankFacts>& ranks, const std::string& json) {
  const Diagnosis diagnosis = diagnose(ranks);
  const ExitCode code = diagnosis.is_healthy() ? ExitCode::kSuccess : ExitCode::kEnvironment;
  write_report(report_of(diagnosis, ranks), json, "doctor", code);
  return code;
}

int run_doctor(const DoctorOptions& options, CommandContext& context) {
  World& world = *context.world;
  context.error_scope = ErrorScope::kThisRank;
  const auto watchdog = make_watchdog(world, kMaxSilenceSeconds);
  const RankFacts mine = measure_rank(options.measure, world);
  std::vector<RankFacts> ranks;
  for (const std::string& text : world.gather_texts(to_json_text(mine))) {
    ranks.push_back(rank_facts_of(text));
  }
  const ExitCode code = world.rank() == 0 ? report(ranks, options.json) : ExitCode::kSuccess;
  return world.agree_max(static_cast<int>(code));
}

}  // namespace

void add_doctor_command(CLI::App& program, Chosen& chosen) {
  CLI::App& doctor = add_command(
      program, chosen,
      {.name = "doctor",
       .description =
           "Checks every node before a job starts: rates of GPUs, processors, memory and "
           "network compared with the other ranks, links and errors of GPUs, free space, "
           "equal builds. Takes less than a minute. Exit code 5 if a node has a fault; "
           "the last line says what to do.",
       .examples = {"bertha doctor", "mpirun -np 8 bertha doctor --output-dir runs",
                    "launch/run_mpirun.sh --hosts a:8,b:8 doctor",
                    "srun --mpi=pmix bertha doctor --json doctor.json"}});
  DoctorOptions& options = set_action<DoctorOptions>(doctor, chosen, run_doctor);
  add_choice<ComputeBackend>(
      doctor, "--backend", options.measure.backend,
      "Device to check; auto = cuda if it is built in and a GPU is present (default auto)");
  add_text(doctor, "-o,--output-dir", options.measure.output_dir, "DIR",
           "Folder of the job's checkpoints; checks its space and speed");
  add_json(doctor, options.json);
}

}  // namespace bertha

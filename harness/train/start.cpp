#include "harness/train/start.h"

#include <unistd.h>

#include <algorithm>

#include "data/files/text_file.h"
#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/comm/rank_name.h"
#include "harness/config/environment.h"
#include "harness/config/keys.h"
#include "harness/config/load.h"
#include "harness/report/device_peak.h"
#include "harness/report/run_folder.h"
#include "harness/report/system_facts.h"
#include "harness/train/data_check.h"
#include "harness/train/finish.h"
#include "harness/train/resume.h"
#include "harness/train/warm_up.h"
#include "kernels/base/divide.h"
#include "kernels/base/joined.h"
#include "kernels/base/log.h"
#include "kernels/base/shell_word.h"

namespace bertha {
namespace {

bool holds_checkpoints(const RunFolder& folder) {
  return !list_checkpoints(checkpoint_dir(folder.path)).empty();
}

/// Returns the settings that differ from the last start in the folder. Fails if they differ and
/// only the run's name chose the folder: it may contain another run, which is continued only on
/// request.
std::string compare_with_last_start(const RunFolder& folder, const Config& config) {
  if (folder.earlier_config.empty() || !holds_checkpoints(folder)) return "";
  std::string changes;
  try {
    const Config earlier =
        config_from_yaml(read_text_file(folder.earlier_config), folder.earlier_config);
    changes = joined(changed_settings(earlier, config), ", ");
  } catch (const Error& error) {  // written by another version of the program
    log_line(LogLevel::kWarning,
             concat("settings not compared with the last start: ", error.what()));
  }
  if (!changes.empty() && config.log.run_dir.empty() && config.checkpoint.resume == "auto") {
    fail(ExitCode::kUsage, folder.path, ": contains a run with other settings (", changes,
         "); give another folder with --output-dir or another log.run_name for a new run, --resume "
         "never to start over in this folder, or to continue with the changes --output-dir ",
         shell_word(folder.path));
  }
  return changes;
}

/// Creates or opens the run folder on rank 0 and broadcasts its path. Returns on rank 0 the
/// settings that differ from the last start there.
std::string open_folder(Run& run, RunFolder& folder) {
  World& world = *run.world;
  std::string changes;
  if (world.rank() == 0) {
    const LogConfig& log = run.config.log;
    folder = open_run_folder({.run_dir = log.run_dir,
                              .run_name = log.run_name,
                              .job = log.run_dir.empty() ? batch_job() : ""});
    changes = compare_with_last_start(folder, run.config);
    const std::string& resume = run.config.checkpoint.resume;
    const bool begins_anew = resume == "never" || (resume == "auto" && !holds_checkpoints(folder));
    if (begins_anew) set_aside_mlperf_logs(folder);
    make_parts(folder);
  }
  run.run_dir = world.broadcast(folder.path, 0);
  return changes;
}

/// system.json: the description of the system for a submission.
void describe_system_of(const Run& run, const RunInfo& info) {
  const World& world = *run.world;
  if (world.rank() != 0) return;
  const Session& session = *run.session;
  const int64_t ranks_per_node = world.node_size();
  SystemFacts facts{.host = read_host_facts(),
                    .nodes = ceil_div(world.size(), ranks_per_node),
                    .ranks_per_node = ranks_per_node,
                    .versions = info.versions,
                    .git_hash = info.git_hash};
  if (!session.gpu.is_none()) {
    const std::string description = session.backend->device().description();
    facts.accelerator = description.substr(0, description.find(','));
    facts.accelerator_memory_bytes = session.backend->device().total_memory_bytes();
    facts.driver = driver_version();
  }
  write_system_facts(run.run_dir + "/system.json", facts);
}

RunFacts facts_of(const Run& run) {
  RunFacts facts{.world_size = run.world->size(),
                 .max_steps = run.plan.last_step,
                 .first_step = run.state.step,
                 .masked_per_seq = masked_per_seq(run.config.data),
                 .has_random_head = run.session->has_random_head,
                 .device = run.session->backend->device().description(),
                 .kernels = run.session->kernels};
  facts.peak_flops_per_second =
      static_cast<double>(facts.world_size) * peak_flops(facts.device, run.session->io);
  for (const ParamInfo& param : run.session->table.params) {
    facts.parameters += param.elements;
    facts.tensor_names.push_back(param.name);
  }
  return facts;
}

/// Each rank reads its own part of the evaluation set; if one rank fails, all do.
void read_data(Run& run) {
  World& world = *run.world;
  OpenPipeline open;
  on_all_ranks(world, [&] {
    check_data(run.config, world.rank(), world.size());
    if (world.rank() == 0 && run.origin.empty()) check_initial_tokenizer(run.config);
    run.eval_batches =
        read_eval_batches(run.config, world.rank(), world.size(), run.session->batch_memory);
    open = plan_batches(run);
  });
  std::unique_ptr<Transport> transport = world.make_transport();
  run.eval_set = describe_eval_set(run.eval_batches, run.config.model.vocab_size, *transport,
                                   run.config.data.eval);
  run.pipeline = open(std::move(transport), run.session->batch_memory);
}

/// Warns if training repeats the same sequences so often that the model memorizes them.
void warn_of_many_epochs(const Run& run) {
  constexpr int64_t kManyEpochs = 20;
  const int64_t seqs = run.pipeline->samples_per_epoch();
  const int64_t epochs = run.plan.last_samples / std::max<int64_t>(seqs, 1);
  if (epochs < kManyEpochs || run.config.train.overfit_one_batch || run.world->rank() != 0) return;
  log_line(LogLevel::kWarning,
           concat("data.train contains ", seqs, " sequences: the run repeats them ", epochs,
                  " times and memorizes them; give more text, or lower "
                  "train.max_steps"));
}

}  // namespace

void start_run(Training& training, const RunInfo& info) {
  auto& [run, telemetry, lifecycle] = training;
  World& world = *run.world;
  if (run.config.data.synthetic || run.config.train.overfit_one_batch) {
    run.config.mlperf.division = Division::kOpen;  // the run cannot comply with the closed division
    run.config.train.target_accuracy = 0;
  }
  const std::string changes = open_folder(run, telemetry.folder);
  start_node_log(run.run_dir, own_host(), world.rank());
  telemetry.reporter = make_reporter(run.config, run.run_dir, world.rank());
  Reporter& reporter = *telemetry.reporter;
  reporter.init_start();
  run.session = std::make_unique<Session>(run.config, world);
  const Session& session = *run.session;
  describe_system_of(run, info);
  attach(telemetry, run);
  warm_up(*run.session, run.config.train.init_warmup_steps);
  world.board().enter(0, RunPhase::kReadWeights);
  begin_or_go_on(run, reporter);
  if (!run.origin.empty() && !changes.empty()) {
    reporter.warning(concat("continues with other settings than before: ", changes));
  }
  begin_records(telemetry, run);
  reporter.init_stop(facts_of(run));
  reporter.event(session.cores.description);
  log_line(LogLevel::kDebug,
           concat(rank_name(world), ", process ", getpid(), ": ",
                  session.backend->device().description(), ", ", session.cores.description));
}

void open_data(Training& training, const RunInfo& info) {
  Run& run = training.run;
  Telemetry& telemetry = training.telemetry;
  World& world = *run.world;
  world.board().enter(run.state.step, RunPhase::kOpenData);
  telemetry.reporter->run_start();
  end_log_if_data_fail(training, [&] { read_data(run); });
  telemetry.reporter->data_opened(
      {.train_samples_per_epoch = run.pipeline->samples_per_epoch(),
       .eval_samples = run.eval_set.num_seqs,
       .constant_answer_accuracy = run.eval_set.constant_answer_accuracy,
       .target_accuracy = target_accuracy(run)});
  const std::string warning = warning_of_small_set(run.eval_set, run.config.data.eval);
  if (!warning.empty() && world.rank() == 0) log_line(LogLevel::kWarning, warning);
  warn_of_many_epochs(run);
  claim_checkpoints(run);
  // A refused start has trained nothing, so its settings are not recorded as the run's.
  on_first_rank(world, [&] {
    telemetry.resolved_config =
        record_start(telemetry.folder, to_yaml(run.config), run.world->size(), info);
    point_latest_to(run.run_dir);
  });
  run.energy = std::make_unique<EnergyMeter>(run.session->gpu.bus_id, world);
}

}  // namespace bertha

#include "harness/train/start.h"

#include <unistd.h>

#include "harness/checkpoint/checkpoint_folder.h"
#include "harness/checkpoint/on_all_ranks.h"
#include "harness/comm/rank_failure.h"
#include "harness/config/load.h"
#include "harness/report/rank_log.h"
#include "harness/report/run_folder.h"
#include "harness/report/system_facts.h"
#include "harness/train/data_check.h"
#include "harness/train/data_position.h"
#include "harness/train/finish.h"
#include "harness/train/milestones.h"
#include "harness/train/warm_up.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

std::string agree_on_folder(const Config& config, World& world, const RunInfo& info) {
  std::string path;
  if (world.rank() == 0) {
    path = make_run_folder({.run_dir = config.log.run_dir,
                            .run_name = config.log.run_name,
                            .resolved_yaml = to_yaml(config),
                            .command_line = info.command_line,
                            .git_hash = info.git_hash,
                            .world_size = world.size(),
                            .versions = info.versions,
                            .environment = info.environment})
               .path;
  }
  return world.broadcast(path, 0);
}

/// The folder of the checkpoint to go on from; empty for a fresh start.
std::string choose_checkpoint(const TrainingRun& run) {
  const std::string& resume = run.config.checkpoint.resume;
  if (resume == "never") return "";
  if (resume != "auto") return resume;
  World& world = *run.world;
  std::string newest;
  on_all_ranks(world, [&] {
    if (world.rank() == 0) newest = newest_checkpoint(checkpoint_dir(run.run_dir)).value_or("");
  });
  return world.broadcast(newest, 0);
}

void begin_anew(TrainingRun& run, const DataPosition& position) {
  run.state.data = position;
  run.state.seed = static_cast<uint64_t>(run.config.train.seed);
  run.session->initialize_weights();
}

void go_on_from(const std::string& from, const DataPosition& position, TrainingRun& run) {
  const TrainConfig& train = run.config.train;
  TrainingState& state = run.state;
  state = load_checkpoint(from, run.session->checkpoint_parts());
  if (state.seed != static_cast<uint64_t>(train.seed)) {
    fail(ExitCode::kUsage, from, " was trained with train.seed ", state.seed, ", found ",
         train.seed, "; set train.seed to ", state.seed,
         " to go on, or checkpoint.resume to never to start anew.");
  }
  on_all_ranks(*run.world, [&] { check_data_position(state.data, position, run.config, from); });
  run.first_step = state.step;
  run.resumed_step = state.step;
  run.saved_step = state.step;
  run.last_checkpoint = from;
  if (!state.evals.empty()) run.evaluated_step = state.evals.back().step;
  if (run.evaluated_step == state.step) pass_planned_evals(run);
  run.earlier_seconds = state.training_seconds;
  run.reporter->event(concat("resumed from ", from, " at step ", state.step));
}

void begin_or_go_on(TrainingRun& run) {
  const std::string from = choose_checkpoint(run);
  DataPosition position;
  on_all_ranks(*run.world, [&] { position = data_position(run.config); });
  if (from.empty()) {
    begin_anew(run, position);
  } else {
    go_on_from(from, position, run);
  }
}

/// system.json: what a submission says of the system.
void describe_system_of(const TrainingRun& run, const RunInfo& info) {
  const World& world = *run.world;
  if (world.rank() != 0) return;
  const Session& session = *run.session;
  const int64_t ranks_per_node = world.node_size();
  SystemFacts facts{.host = read_host_facts(),
                    .nodes = (world.size() + ranks_per_node - 1) / ranks_per_node,
                    .ranks_per_node = ranks_per_node,
                    .versions = info.versions,
                    .git_hash = info.git_hash};
  if (session.choice.kind == BackendChoice::Kind::kCuda) {
    const std::string description = session.backend.device->description();
    facts.accelerator = description.substr(0, description.find(','));
    facts.accelerator_memory_bytes = session.backend.device->total_memory_bytes();
    facts.driver = driver_version();
  }
  write_system_facts(run.run_dir + "/system.json", facts);
}

RunFacts facts_of(const TrainingRun& run) {
  RunFacts facts{.world_size = run.world->size(),
                 .max_steps = run.config.train.max_steps,
                 .first_step = run.state.step,
                 .device = run.session->backend.device->description(),
                 .attention = run.session->attention,
                 .gelu_products = run.session->gelu_products};
  for (const ParamInfo& param : run.session->table.params) {
    facts.parameters += param.elements;
    facts.tensor_names.push_back(param.name);
  }
  return facts;
}

/// Each rank reads its own part of the evaluation set: where one fails, all do.
void read_data(TrainingRun& run) {
  World& world = *run.world;
  const HostAllocator allocate = run.session->pinned_allocator();
  PipelineOptions options;
  on_all_ranks(world, [&] {
    check_data(run.config);
    run.eval_batches =
        load_eval_batches(eval_options(run.config), world.rank(), world.size(), allocate);
    options = pipeline_options(run.config, run.state.step);
  });
  run.transport = world.make_transport();
  run.eval_set = describe_eval_set(run.eval_batches, run.config.model.vocab_size, *run.transport);
  run.pipeline = make_training_pipeline(options, *run.transport, allocate);
}

}  // namespace

TrainingRun start_run(const Config& config, World& world, const RunInfo& info) {
  TrainingRun run{.config = config,
                  .plan = make_run_plan(config),
                  .world = &world,
                  .run_dir = agree_on_folder(config, world, info)};
  run.config.log.run_dir = run.run_dir;
  start_rank_log(run.run_dir, world.rank());
  run.reporter = make_reporter(run.config, run.run_dir, world.rank());
  run.reporter->init_start();
  run.session = std::make_unique<Session>(run.config, world);
  describe_system_of(run, info);
  const Session& session = *run.session;
  run.timers = std::make_unique<PhaseTimers>(*session.backend.device, *session.backend.stream);
  run.profiled = std::make_unique<ProfiledSteps>(config.log.profile_steps, *session.backend.device,
                                                 *session.backend.stream);
  run.probe = std::make_unique<StepProbe>(session.parts(), *session.backend.collectives);
  run.progress = std::make_unique<Progress>(session.dims, world.size(), config.train.max_steps,
                                            config.train.nsp_weight);
  warm_up(*run.session, config.train.init_warmup_steps);
  begin_or_go_on(run);
  run.reporter->init_stop(facts_of(run));
  run.reporter->event(session.cores.description);
  log_line(LogLevel::kDebug,
           concat(rank_name(world), ", process ", getpid(), ": ",
                  session.backend.device->description(), ", ", session.cores.description));
  return run;
}

void open_data(TrainingRun& run) {
  World& world = *run.world;
  run.reporter->run_start();
  end_log_if_data_fail(run, [&] { read_data(run); });
  run.reporter->data_opened({.train_samples_per_epoch = run.pipeline->samples_per_epoch(),
                             .eval_samples = run.eval_set.num_seqs,
                             .constant_answer_accuracy = run.eval_set.constant_answer_accuracy});
  const std::string warning = warning_of_small_set(run.eval_set, run.config.data.eval);
  if (!warning.empty() && world.rank() == 0) log_line(LogLevel::kWarning, warning);

  // Not before all else has succeeded: a run that cannot start leaves the folder as it was.
  on_all_ranks(world, [&] {
    if (world.rank() != 0) return;
    set_aside_later_checkpoints(checkpoint_dir(run.run_dir), run.resumed_step);
  });
}

}  // namespace bertha

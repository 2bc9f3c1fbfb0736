#include "harness/cli/command.h"
#include "harness/cli/config_options.h"
#include "harness/config/build_info.h"
#include "harness/config/check.h"
#include "harness/config/environment.h"
#include "harness/train/loop.h"
#include "kernels/base/log.h"

namespace bertha {
namespace {

RunInfo run_info(const CommandContext& context) {
  const BuildInfo build = build_info();
  RunInfo info{.command_line = {"bertha"},
               .git_hash = build.git_hash,
               .versions = {{"bertha", build.version}, {"compiler", build.compiler}},
               .environment = recorded_environment()};
  info.command_line.insert(info.command_line.end(), context.arguments.begin(),
                           context.arguments.end());
  info.versions.insert(info.versions.end(), build.libraries.begin(), build.libraries.end());
  return info;
}

}  // namespace

void add_train_command(CLI::App& program, Chosen& chosen) {
  CLI::App& train = add_command(
      program, chosen,
      {.name = "train",
       .description =
           "Trains a model until it reaches its target, or with --model to the last step; start it "
           "with mpirun for several ranks. Exit code 0 at the end, 3 if a target was not reached, "
           "75 if it was stopped and saved its state: the same command then continues.",
       .examples = {
           "bertha train --config configs/quickstart.yaml",
           "bertha train --config configs/models/tiny.yaml --set data.synthetic=true "
           "--global-batch 32 --max-steps 20",
           "bertha train --model bert-base-cased --data shards --output adapted",
           "mpirun -np 8 bertha train --config configs/mlperf_closed_8gpu_448.yaml --seed 7",
           "bertha train configs/quickstart.yaml --set train.max_steps=100"}});
  add_config_options(train, ShortOptions::kTraining);
  add_config_file(train);
  set_action(train, chosen, [&train](CommandContext& context) {
    const Config config = config_for_ranks(train, *context.world, BatchRule::kDividesOverRanks);
    if (context.world->rank() == 0) {
      for (const std::string& remark : config_remarks(config)) {
        log_line(LogLevel::kWarning, remark);
      }
    }
    context.error_scope = ErrorScope::kThisRank;
    return run_training(config, *context.world, run_info(context));
  });
}

}  // namespace bertha

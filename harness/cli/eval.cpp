#include <memory>
#include <string>

#include "harness/cli/command.h"
#include "harness/cli/config_options.h"
#include "harness/cli/rank_config.h"
#include "harness/train/loop.h"

namespace bertha {

void add_eval_command(CLI::App& program, Chosen& chosen) {
  CLI::App& eval = add_command(
      program, chosen,
      {.name = "eval",
       .description = "Evaluates a checkpoint on the whole evaluation set. Exit code 3 when the "
                      "target is missed.",
       .examples = {"bertha eval --config configs/quickstart.yaml --checkpoint "
                    "runs/latest/ckpt/step_00001000",
                    "mpirun -np 2 bertha eval --config runs/latest/resolved.yaml --checkpoint "
                    "runs/latest/ckpt/step_00001000",
                    "bertha eval --config configs/quickstart.yaml --checkpoint my_model --set "
                    "data.eval=data/eval"}});
  add_config_options(eval, ShortOptions::kEvaluation);
  const auto checkpoint = std::make_shared<std::string>();
  eval.add_option("--checkpoint", *checkpoint, "Folder with model.safetensors")
      ->required()
      ->type_name("DIR");
  eval.callback([&eval, &chosen, checkpoint] {
    chosen.action = [&eval, checkpoint](CommandContext& context) {
      const Config config = config_for_ranks(eval, *context.world, BatchRule::kAnySize);
      context.error_scope = ErrorScope::kThisRank;
      return run_evaluation(config, *checkpoint, *context.world);
    };
  });
}

}  // namespace bertha

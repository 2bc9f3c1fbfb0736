#include <memory>
#include <string>

#include "harness/checkpoint/on_all_ranks.h"
#include "harness/cli/checkpoint_commands.h"
#include "harness/cli/command.h"
#include "harness/cli/config_options.h"
#include "harness/cli/options.h"
#include "harness/train/loop.h"

namespace bertha {
namespace {

struct EvalOptions {
  std::string checkpoint;
  std::string json;
};

}  // namespace

void add_eval_command(CLI::App& program, Chosen& chosen) {
  CLI::App& eval = add_command(
      program, chosen,
      {.name = "eval",
       .description = "Evaluates a checkpoint on the whole evaluation set. Without --config the "
                      "settings are those of the checkpoint's run. Exit code 3 when the target is "
                      "missed.",
       .examples = {"bertha eval --checkpoint runs/latest",
                    "mpirun -np 2 bertha eval --checkpoint runs/latest/ckpt/step_00001000",
                    "bertha eval --model my_model --data shards --json eval.json"}});
  add_config_options(eval, ShortOptions::kEvaluation);
  const auto options = std::make_shared<EvalOptions>();
  add_text(eval, "--checkpoint,--model", options->checkpoint, "PATH",
           "Checkpoint, run folder (its newest checkpoint), or weights as for checkpoint.init")
      .required();
  add_json(eval, options->json);
  set_action(eval, chosen, [&eval, options](CommandContext& context) {
    const Config config = config_for_ranks(eval, *context.world, BatchRule::kAnySize);
    context.error_scope = ErrorScope::kThisRank;
    // Rank 0 chooses the newest checkpoint of a run folder, so that all ranks use the same one.
    const auto find = [&](const std::string& path) {
      return text_of_first_rank(*context.world, [&] { return weights_at(path); });
    };
    const auto evaluate = [&](const std::string& weights) {
      return run_evaluation(config, weights, options->json, *context.world);
    };
    if (context.world->size() > 1) return evaluate(find(options->checkpoint));
    return with_checkpoint(options->checkpoint, find, evaluate);
  });
}

}  // namespace bertha

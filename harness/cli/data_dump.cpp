#include <iostream>
#include <memory>

#include "harness/cli/config_options.h"
#include "harness/cli/data_commands.h"
#include "harness/cli/options.h"
#include "harness/config/check.h"
#include "harness/train/dump_batches.h"

namespace bertha {

void add_data_dump_batches(CLI::App& data, Chosen& chosen) {
  CLI::App& dump = add_command(
      data, chosen,
      {.name = "dump-batches",
       .description = "Writes the first batches that a run would train on, and the weights it "
                      "would begin with, as safetensors, so that another program can train on "
                      "them. Runs as one process; with data.order published the batches are those "
                      "of a run on one rank.",
       .examples = {"bertha data dump-batches --config my.yaml --steps 300 --weights --output dump",
                    "bertha data dump-batches --config my.yaml --set train.seed=7 --output dump",
                    "python3 tests/comparisons/torch_curve.py dump --output runs/torch"}});
  const auto options = std::make_shared<DumpOptions>();
  add_text(dump, "-o,--output", options->folder, "DIR", "Folder to write").required();
  add_count(dump, "--steps", options->steps, "Number of steps, from the first on (default 1)", 1);
  add_flag(dump, "--weights", options->weights, "Also the initial weights");
  add_config_options(dump, ShortOptions::kNone);
  set_action(dump, chosen, [&dump, options](CommandContext&) {
    const LoadedConfig loaded = load_from_options(dump);
    check_config(loaded, 1);
    dump_batches(loaded.config, *options);
    std::cout << "written: " << options->folder << ", " << options->steps << " batch(es)\n";
    return 0;
  });
}

}  // namespace bertha

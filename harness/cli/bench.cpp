#include "harness/cli/command.h"

namespace bertha {

void add_bench_command(CLI::App& program, Chosen& chosen) {
  CLI::App& bench =
      add_command(program, chosen,
                  {.name = "bench",
                   .description = "Measures parts of the harness on this machine.",
                   .examples = {"bertha bench loader", "mpirun -np 2 bertha bench loader",
                                "bertha bench step --config configs/quickstart.yaml",
                                "bertha bench kernels --op linear_fwd"}});
  add_bench_loader_command(bench, chosen);
  add_bench_step_command(bench, chosen);
  add_bench_kernels_command(bench, chosen);
}

}  // namespace bertha

#pragma once

#include "harness/cli/command.h"

namespace bertha {

// The parts of `bertha bench`, one source file each.
void add_bench_loader_command(CLI::App& bench, Chosen& chosen);
void add_bench_step_command(CLI::App& bench, Chosen& chosen);

}  // namespace bertha

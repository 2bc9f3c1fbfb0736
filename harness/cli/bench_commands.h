#pragma once

#include "data/pipeline/synthetic_steps.h"
#include "harness/cli/command.h"

namespace bertha {

// The parts of `bertha bench`, one source file each.
void add_bench_loader_command(CLI::App& bench, Chosen& chosen);
void add_bench_step_command(CLI::App& bench, Chosen& chosen);
void add_bench_kernels_command(CLI::App& bench, Chosen& chosen);

/// Rank 0 reads the file; all take what it found, or throw its error. Empty for no path.
LengthHistogram read_lengths(const std::string& path, World& world);

}  // namespace bertha

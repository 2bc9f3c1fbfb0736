#pragma once

#include "data/shard_file.h"
#include "harness/cli/command.h"

namespace bertha {

// The sub-commands of `bertha data`: data_vocab.cpp, data_prepare.cpp, data_dump.cpp and, for
// those that read, data_inspect.cpp.
void add_data_vocab(CLI::App& data, Chosen& chosen);
void add_data_prepare(CLI::App& data, Chosen& chosen);
void add_data_convert(CLI::App& data, Chosen& chosen);
void add_data_verify(CLI::App& data, Chosen& chosen);
void add_data_stats(CLI::App& data, Chosen& chosen);
void add_data_dump_batches(CLI::App& data, Chosen& chosen);

/// --text PATH..., required.
void add_text_option(CLI::App& command, std::vector<std::string>& inputs);
/// --layout variable|fixed.
void add_layout_option(CLI::App& command, ShardLayout& layout);
/// --vocab-size, --max-seq-tokens and --max-masked-per-seq.
void add_limit_options(CLI::App& command, SampleLimits& limits);
/// The limits that the options set, else those of the manifest beside the data, else the defaults.
SampleLimits limits_for(const CLI::App& command, const SampleLimits& options,
                        const std::string& path);

}  // namespace bertha

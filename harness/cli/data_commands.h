#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "data/convert/convert.h"
#include "data/convert/shard_job.h"
#include "data/format/manifest.h"
#include "data/format/sample.h"
#include "data/format/shard_layout.h"
#include "data/prepare/prepare.h"
#include "harness/cli/command.h"
#include "harness/cli/progress_line.h"

namespace bertha {

// The sub-commands of `bertha data`: data_vocab.cpp, data_prepare.cpp, data_convert.cpp,
// data_pack.cpp, data_dump.cpp and, for commands that only read, data_inspect.cpp.
void add_data_vocab(CLI::App& data, Chosen& chosen);
void add_data_prepare(CLI::App& data, Chosen& chosen);
void add_data_convert(CLI::App& data, Chosen& chosen);
void add_data_pack(CLI::App& data, Chosen& chosen);
void add_data_verify(CLI::App& data, Chosen& chosen);
void add_data_stats(CLI::App& data, Chosen& chosen);
void add_data_dump_batches(CLI::App& data, Chosen& chosen);

/// Describes the text that samples were generated from, if the manifest has counts of it. Logs a
/// warning if the samples lose text, the vocabulary lacks parts of it, or it has too few documents
/// for random next sentences.
std::string text_of_counts(const std::string& path, const std::map<std::string, int64_t>& counts);

/// --text PATH..., required, --partial and --field.
void add_text_options(CLI::App& command, std::vector<std::string>& inputs, MissingFiles& missing,
                      std::string& field);
/// --layout variable|fixed.
void add_layout_option(CLI::App& command, ShardLayout& layout);
/// The options of convert and pack for their input: the path, --max-sequences, --partial,
/// --threads, --memory-mib and the limits.
void add_source_options(CLI::App& command, SourceOptions& source);
/// Warns about missing files that --partial allows.
void warn_of_missing(const SourceOptions& source);

/// "4 shards, all there already (2 of an earlier run)".
std::string shards_text(const Manifest& manifest, bool already_done, int64_t reused);
/// Prints the result of a conversion; returns the exit code.
int print_converted(const ConvertOptions& options, const ConvertResult& result);

/// --vocab-size, --max-seq-tokens and --max-masked-per-seq.
void add_limit_options(CLI::App& command, SampleLimits& limits);
/// The limits that the options set, else the limits in the manifest next to the data, else the
/// defaults.
SampleLimits limits_for(const CLI::App& command, const SampleLimits& options,
                        const std::string& path);

}  // namespace bertha

#pragma once

#include <string>
#include <vector>

#include "data/files/tokenizer_settings.h"
#include "data/format/manifest.h"
#include "data/prepare/intake.h"
#include "data/prepare/prepare.h"
#include "data/prepare/source_files.h"

namespace bertha {

/// Where the samples of one part of the text go.
struct PartPlan {
  SourceFile source;
  uint64_t seed = 0;
  std::string path;         // of the samples
  std::string record_path;  // of what is known of them
  std::string key;          // everything that decides them
};

/// All that is decided before the first sample is made.
struct PreparationPlan {
  GeneratorOptions generator;
  IntakeOptions intake;  // unless it is_published
  TokenizerSettings tokenizer;
  ShardLayout part_layout = ShardLayout::kVariableLength;
  std::vector<PartPlan> parts;
  std::vector<std::string> shard_paths;
  std::string manifest_path;
  std::string checksum_list_path;
  Manifest manifest;         // all but counts, histogram and shards
  int64_t eval_samples = 0;  // > 0: picked for the only shard
  bool parts_are_shards = false;
  bool is_published = true;
};

/// Error(kUsage) naming the option that is out of range or in conflict with another.
void check_options(const PrepareOptions& options);

/// All but the parts and the shards. `source_sha256` belongs to the sources, in order.
PreparationPlan make_plan(const PrepareOptions& options, const std::vector<SourceFile>& sources,
                          const std::vector<std::string>& source_sha256, int64_t vocab_size);

/// Adds the parts and the paths of the shards.
void plan_parts(const PrepareOptions& options, const std::vector<TextPart>& texts,
                PreparationPlan& plan);

/// The plan for the evaluation shard, which lies in a folder of its own in the output folder.
PreparationPlan plan_held_out(const PreparationPlan& plan, const PrepareOptions& options,
                              const std::vector<TextPart>& texts);

/// Error(kData) when output_dir holds the results of other options or text.
void check_same_data(const PreparationPlan& plan);

/// Error(kData) when output_dir holds shards that this preparation would not write, or, while the
/// parts are not planned, any that no earlier run of it wrote.
void check_output_folder(const PrepareOptions& options, const PreparationPlan& plan);

/// Whether the manifests and every shard of them are there, byte for byte; then `summary` has them.
/// Error(kData) naming a count that such a manifest lacks.
bool is_already_done(const PrepareOptions& options, const PreparationPlan& plan,
                     PrepareSummary& summary);

}  // namespace bertha

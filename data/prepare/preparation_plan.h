#pragma once

#include <filesystem>
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
  ManifestSource text;
  uint64_t seed = 0;
  std::string path;         // path of the samples
  std::string record_path;  // path of their record
  std::string key;          // everything that decides them
};

/// A data set to prepare: all decisions before the first sample.
struct PreparationPlan {
  std::filesystem::path folder;
  GeneratorOptions generator;
  IntakeOptions intake;  // unless it is_published
  TokenizerSettings tokenizer;
  ShardLayout part_layout = ShardLayout::kVariableLength;
  std::vector<PartPlan> parts;
  std::vector<std::string> shard_names;
  Manifest manifest;         // all but counts, histogram and shards
  int64_t eval_samples = 0;  // > 0: picked for the only shard
  bool parts_are_shards = false;
  bool is_published = true;

  std::string manifest_path() const { return (folder / kManifestName).string(); }
  std::string shard_path(size_t shard) const { return (folder / shard_names.at(shard)).string(); }
};

/// Error(kUsage) naming the option that is out of range or in conflict with another.
void check_options(const PrepareOptions& options);

/// All but the parts and the shards. `texts` are the sources with their hashes.
PreparationPlan make_plan(const PrepareOptions& options, const std::vector<SourceFile>& sources,
                          std::vector<ManifestSource> texts, int64_t vocab_size);

/// Adds the parts and the names of the shards.
void plan_parts(const PrepareOptions& options, const std::vector<ManifestSource>& texts,
                PreparationPlan& plan);

/// The plan for the evaluation shard, which is in a separate folder in the output folder.
PreparationPlan plan_held_out(const PreparationPlan& plan,
                              const std::vector<ManifestSource>& texts);

/// Error(kData) if the folder contains the results of other options or text.
void check_same_data(const PreparationPlan& plan);

/// Error(kData) if the folder contains shards that this preparation would not write or, while the
/// parts are not planned, any that no earlier run of it wrote.
void check_output_folder(const PreparationPlan& plan);

/// Whether the manifests and every shard of them are there, byte for byte; then `summary` has them.
/// Error(kData) naming a count that such a manifest lacks.
bool is_already_done(const PrepareOptions& options, const PreparationPlan& plan,
                     PrepareSummary& summary);

}  // namespace bertha

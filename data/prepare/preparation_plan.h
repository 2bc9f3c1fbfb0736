#pragma once

#include <string>
#include <vector>

#include "data/files/tokenizer_settings.h"
#include "data/format/manifest.h"
#include "data/prepare/prepare.h"
#include "data/prepare/source_files.h"

namespace bertha {

/// Where one text file's samples go.
struct PartPlan {
  SourceFile source;
  std::string path;         // of the samples
  std::string record_path;  // of what is known of them
  std::string key;          // everything that decides them
};

/// All that is decided before the first sample is made.
struct PreparationPlan {
  GeneratorOptions generator;
  TextForm text_form = TextForm::kSentencePerLine;
  TokenizerSettings tokenizer;
  ShardLayout part_layout = ShardLayout::kVariableLength;
  std::vector<PartPlan> parts;
  std::vector<std::string> shard_paths;
  std::string manifest_path;
  std::string checksum_list_path;
  Manifest manifest;  // all but counts, histogram and shards
  bool parts_are_shards = false;
};

/// Error(kUsage) naming the option that is out of range or in conflict with another.
void check_options(const PrepareOptions& options);

/// `source_sha256` belongs to the sources, in order.
PreparationPlan make_plan(const PrepareOptions& options, const std::vector<SourceFile>& sources,
                          const std::vector<std::string>& source_sha256, int64_t vocab_size);

/// Error(kData) when output_dir holds the results of other options or text, or shards that this
/// preparation would not write.
void check_output_folder(const PrepareOptions& options, const PreparationPlan& plan);

/// Whether the manifest and every shard of it are there, byte for byte; then `manifest` is it.
/// Error(kData) naming a count that such a manifest lacks.
bool is_already_done(const PrepareOptions& options, const PreparationPlan& plan,
                     Manifest& manifest);

}  // namespace bertha

#pragma once

#include <string>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

/// Errors    Error(kUsage) when data.train or data.eval is not set, Error(kData) when it holds no
///           shards, or when data.synthetic_lengths is not a histogram. Lists folders and reads no
///           data: the benchmark allows that before run_start.
void check_data_paths(const Config& config);
/// The same without data.train.
void check_eval_path(const Config& config);

/// Compares what training is about to read with what is known of it: the shards of data.train and
/// data.eval with the manifest.json next to them (names, bytes, counts; the hashes follow when a
/// shard is read; the vocabulary and the tokenizer settings that they were made with), if it exists
/// and data.verify_manifest asks for it, and data.vocab with model.vocab_size, which may be larger:
/// a model may have rows that no entry uses.
///
/// Each of `num_ranks` ranks opens its share of the shards; without `opens_shards` names and bytes
/// alone are compared.
///
/// Errors    Error(kData) or Error(kUsage), of a shard on one rank alone.
void check_data(const Config& config, int rank, int num_ranks, bool opens_shards = true);

/// Compares the tokenizer settings next to checkpoint.init with the settings next to data.vocab,
/// which checkpoints inherit. Error(kData) naming both files.
void check_initial_tokenizer(const Config& config);

/// Compares model.vocab_size, data.vocab and the tokenizer settings in `checkpoint_folder` with the
/// manifest next to data.eval, if it exists and data.verify_manifest asks for it.
void check_eval_vocabulary(const Config& config, const std::string& checkpoint_folder);

/// The hashes of the shards' files, as the manifest next to them states; empty without a manifest,
/// or when data.verify_manifest is off.
std::vector<std::string> known_hashes(const Config& config, const std::vector<std::string>& shards);

}  // namespace bertha

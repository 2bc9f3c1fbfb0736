#pragma once

#include <string>
#include <vector>

#include "harness/config/config.h"

namespace bertha {

/// Errors    Error(kUsage) if data.train or data.eval is not set, Error(kData) if it contains no
///           shards, or if data.synthetic_lengths is not a histogram. Lists folders but reads no
///           data: the benchmark allows that before run_start.
void check_data_paths(const Config& config);
/// The same without data.train.
void check_eval_path(const Config& config);

/// Checks the inputs of training before they are read. Compares the shards of data.train and
/// data.eval with the manifest.json next to them, if it exists and data.verify_manifest is set:
/// names, bytes, counts, vocabulary and tokenizer settings (hashes are compared when a shard is
/// read). Compares data.vocab with model.vocab_size, which may be larger: a model may have rows
/// that no entry uses.
///
/// Each of `num_ranks` ranks opens its share of the shards; without `opens_shards` only names and
/// bytes are compared.
///
/// Errors    Error(kData) or Error(kUsage); for a shard, on the rank that opened it.
void check_data(const Config& config, int rank, int num_ranks, bool opens_shards = true);

/// Compares the tokenizer settings next to checkpoint.init with the settings next to data.vocab,
/// which checkpoints inherit. Error(kData) naming both files.
void check_initial_tokenizer(const Config& config);

/// Compares model.vocab_size, data.vocab and the tokenizer settings in `checkpoint_folder` with the
/// manifest next to data.eval, if it exists and data.verify_manifest is set.
void check_eval_vocabulary(const Config& config, const std::string& checkpoint_folder);

/// The hashes of the shard files in the manifest next to them; empty without a manifest or if
/// data.verify_manifest is off.
std::vector<std::string> known_hashes(const Config& config, const std::vector<std::string>& shards);

}  // namespace bertha

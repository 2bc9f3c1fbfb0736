#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/pipeline/pipeline.h"
#include "data/pipeline/synthetic_steps.h"
#include "harness/checkpoint/checkpoint.h"
#include "harness/config/config.h"

namespace bertha {

// What a run trains on and is evaluated on: the shards of data.train and data.eval, or with
// data.synthetic batches that are made up.

/// Steps of made-up batches as this configuration trains, each sequence at full length.
SyntheticSteps synthetic_steps(const Config& config, int num_ranks);

/// How often each length occurs in made-up sequences. Errors as parse_length_histogram.
LengthHistogram synthetic_lengths(const DataConfig& data);

/// The keys under data and train as the pipeline over shards takes them: `num_steps` steps from
/// `first_step` on. Lists the shards, and reads their hashes where data.verify_manifest says so.
PipelineOptions pipeline_options(const Config& config, int64_t first_step, int64_t num_steps);
EvalOptions eval_options(const Config& config);

/// How masks are drawn, with data.masking = dynamic; otherwise nothing. Special ids and the pieces
/// of words come from data.vocab; without it, special ids come from the manifest.
///
/// Errors    Error(kUsage) when neither is there; also as Vocabulary::load() and find_manifest().
std::optional<MaskRule> mask_rule(const DataConfig& data);

/// Opens the batches of a run; collective.
using OpenPipeline =
    std::function<std::unique_ptr<Pipeline>(std::shared_ptr<Transport>, HostAllocator)>;

/// `num_steps` batches from `first_batch` on, counted from the start of the run's order; with
/// train.overfit_one_batch the first one of the run each time.
///
/// Errors    Error(kData) when shards or the file of lengths cannot be read, on this rank alone.
OpenPipeline plan_training_data(const Config& config, int64_t first_batch, int64_t num_steps);

/// This rank's part of the evaluation set. Made up, it has eval.max_samples sequences, or 1,024.
/// Errors as above.
std::vector<HostBatch> read_eval_batches(const Config& config, int rank, int num_ranks,
                                         const HostAllocator& allocate);

/// Sets what identifies the data of training and evaluation, wherever they lie: names and sizes of
/// shards, and if the manifest next to them is known (data.verify_manifest) the hashes that it
/// states; or what decides the lengths of made-up sequences. Reads no shard. Errors as above.
void identify_data(const Config& config, DataPosition& position);

}  // namespace bertha

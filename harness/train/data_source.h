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

// The data of training and evaluation: the shards of data.train and data.eval, or with
// data.synthetic random batches.

/// Synthetic steps with the batches of this configuration, each sequence at full length.
SyntheticSteps synthetic_steps(const Config& config, int num_ranks);

/// How often each length occurs in synthetic sequences. Errors as parse_length_histogram.
LengthHistogram synthetic_lengths(const DataConfig& data);

/// Options of the pipeline over shards from the keys under data and train, for `num_steps` steps
/// from `first_step` on. Lists the shards, and reads their hashes if data.verify_manifest is set.
PipelineOptions pipeline_options(const Config& config, int64_t first_step, int64_t num_steps);
EvalOptions eval_options(const Config& config);

/// How masks are drawn with data.masking = dynamic; otherwise nothing. Special ids and word pieces
/// come from data.vocab; without it, special ids come from the manifest.
///
/// Errors    Error(kUsage) if both are missing; also as Vocabulary::load() and find_manifest().
std::optional<MaskRule> mask_rule(const DataConfig& data);

/// Opens the batches of a run; collective.
using OpenPipeline =
    std::function<std::unique_ptr<Pipeline>(std::shared_ptr<Transport>, HostAllocator)>;

/// `num_steps` batches from `first_batch` on, counted from the start of the run's order; with
/// train.overfit_one_batch, always the run's first batch.
///
/// Errors    Error(kData), on this rank alone, if shards or the file of lengths cannot be read.
OpenPipeline plan_training_data(const Config& config, int64_t first_batch, int64_t num_steps);

/// This rank's part of the evaluation set. A synthetic set has eval.max_samples sequences or 1,024.
/// Errors as above.
std::vector<HostBatch> read_eval_batches(const Config& config, int rank, int num_ranks,
                                         const HostAllocator& allocate);

/// Sets the identity of the data of training and evaluation, which does not depend on their paths:
/// names and sizes of shards, and the hashes in the manifest if data.verify_manifest is set; or
/// what determines the lengths of synthetic sequences. Reads no shard. Errors as above.
void identify_data(const Config& config, DataPosition& position);

}  // namespace bertha

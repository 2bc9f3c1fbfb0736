#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/pipeline/pipeline.h"
#include "data/pipeline/transport.h"

namespace bertha {

/// How fast the pipeline alone delivers batches: the consumer does nothing with them.
struct LoaderBenchOptions {
  /// Without shards they are synthesized in scratch_folder and removed at the end; num_steps is not
  /// read.
  PipelineOptions pipeline{.global_batch_seqs = 448, .seed = 1};
  std::string scratch_folder = "/tmp";  // one that all ranks see
  int64_t synthetic_shards = 16;
  int64_t synthetic_shard_seqs = 4096;
  double warm_up_s = 1.0;  // also the measure from which the number of timed steps follows
  double timed_s = 5.0;
};

/// The same on every rank.
struct LoaderBenchResult {
  int64_t steps = 0;
  double elapsed_s = 0.0;          // on the slowest rank
  double seqs_per_s_global = 0.0;  // over all ranks
  double tokens_per_s_global = 0.0;
  double mean_wait_ms = 0.0;  // in next(), over steps and ranks
  double mean_tokens_per_seq = 0.0;
  double most_over_mean_tokens = 1.0;  // tokens of the fullest rank over the mean, mean of steps
};

/// Runs the pipeline for about timed_s seconds as fast as next() delivers, reading of shards
/// included. Collective. The synthetic shards have the variable-length layout and sequence lengths
/// as in Wikipedia at 512 tokens, and enough of them to be read again in each epoch.
///
/// Errors    as make_training_pipeline(); Error(kData) when the shards cannot be written.
LoaderBenchResult bench_loader(const LoaderBenchOptions& options, Transport& transport);

/// Writes a shard of random samples in the variable-length layout. Lengths follow the histogram of
/// Wikipedia sequences, scaled to limits.max_seq_tokens; 15 % of the tokens are masked.
///
/// Random    a pure function of the arguments other than path.
/// Source    lengths: the histogram of Krell et al., Efficient Sequence Packing without
///           Cross-contamination (arXiv:2107.02027), in steps of 64 tokens.
void write_synthetic_shard(const std::string& path, int64_t num_seqs, uint64_t seed,
                           const SampleLimits& limits);

}  // namespace bertha

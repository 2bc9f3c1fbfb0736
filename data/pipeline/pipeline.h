#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/format/sample.h"
#include "data/pipeline/batch.h"
#include "data/pipeline/dynamic_masks.h"
#include "data/pipeline/sample_order.h"
#include "data/pipeline/transport.h"

namespace bertha {

/// The options of a pipeline. Counts are numbers of sequences, even if the shards contain packs:
/// reading splits these, so that shuffling, exchange and batches handle single sequences and a step
/// has exactly global_batch_seqs of them.
struct PipelineOptions {
  std::vector<std::string> shards = {};  // paths, sorted
  // [shards]  hashes to compare when a shard is read, or none
  std::vector<std::string> shard_xxh3 = {};
  SampleLimits limits = {};  // values beyond them are errors in the shard
  int64_t global_batch_seqs = 0;
  int64_t micro_batches_per_step = 1;  // accumulation steps
  uint64_t seed = 0;
  SampleOrder order = SampleOrder::kWindowed;
  int64_t window_shards = 4;  // samples are shuffled inside windows of this many shards
  ExchangePadding exchange = ExchangePadding::kLengths;
  std::optional<MaskRule> masks = {};  // drawn anew in each epoch; none = as stored
  int64_t prefetch_steps = 2;          // batches ready ahead of the consumer
  int64_t group_bucket_tokens = 128;
  int64_t first_step = 0;  // resume: batches before this one are not delivered, nor read
  std::optional<int64_t> num_steps = {};  // deliver this many and end; default: endless epochs
};

/// The asynchronous input pipeline of one rank. Three threads (stages.h): one reads the shards of a
/// window in the order of the epoch plan, one assembles the samples of a step and exchanges them,
/// one collates; finished batches wait in a bounded queue. Inside a micro-batch the sequences are
/// in order of falling length. A batch may straddle two epochs; no sample is dropped.
///
/// Random    which samples step k holds depends on (seed, k) only, not on the number of ranks;
///           with kPublished it depends on the number of ranks by definition.
/// Needs     memory for two windows of shards per rank; with an exchange, a rank reads and holds
///           only its share of a window (so window_shards >= ranks spreads the reading evenly).
/// Errors    an error of any stage is rethrown by next(); Error(kData) names the shard. When one
///           rank cannot continue, next() throws the same error on all ranks, in the same step if
///           the cause is a shard.
/// Threads   next() from one thread. The destructor stops and joins the stages. It is collective
///           in the sense that it waits for the exchange that is under way: the other ranks must
///           continue to call next() or destroy their pipelines too. While an exception unwinds,
///           it does not wait; the job must then be aborted because other ranks may be waiting.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  /// The next step's batch, or nothing after the last. Blocks until it is ready.
  virtual std::optional<StepBatch> next() = 0;
  /// Samples in one epoch, over all shards.
  virtual int64_t samples_per_epoch() const = 0;
};

/// Collective; all ranks give the same options. `transport` is used by the caller until this
/// returns, then by one thread of the pipeline. A thread that never returns from a call of it keeps
/// it alive. `allocate` is called from another thread of the pipeline.
std::unique_ptr<Pipeline> make_training_pipeline(const PipelineOptions& options,
                                                 std::shared_ptr<Transport> transport,
                                                 HostAllocator allocate);

/// The whole evaluation set once: rank r takes a contiguous part (the first `remainder` ranks one
/// sample more), in file order, in batches of at most `batch_seqs`. Ranks may hold different
/// numbers of batches; evaluation reduces once at its end.
struct EvalOptions {
  std::vector<std::string> shards;
  std::vector<std::string> shard_xxh3 = {};  // as in PipelineOptions
  SampleLimits limits = {};
  int64_t batch_seqs = 16;  // per rank and batch
  int64_t max_samples = 0;  // 0 = all
  int64_t group_bucket_tokens = 128;
};
std::vector<HostBatch> load_eval_batches(const EvalOptions& options, int rank, int num_ranks,
                                         const HostAllocator& allocate);

/// Plain memory, aligned to 256 bytes.
HostAllocator plain_host_allocator();

}  // namespace bertha

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/format/sample.h"
#include "data/pipeline/batch.h"
#include "data/pipeline/pipeline.h"
#include "data/random/draws.h"

namespace bertha {

/// How often sequences of each length occur: element t counts sequences of t tokens.
using LengthHistogram = std::vector<int64_t>;

/// One count per line, for lengths 1, 2, 3, ...; or a length and its count on each line, in any
/// order. Empty lines and those that begin with # do not count.
///
/// Errors    Error(kData) naming `source` and the line; a histogram needs a count above zero, and
///           none of sequences shorter than three tokens.
LengthHistogram parse_length_histogram(const std::string& text, const std::string& source);

/// All lengths equally often, from eight tokens, or the longest if that is shorter.
LengthHistogram uniform_lengths(int64_t max_seq_tokens);

/// Steps of synthetic batches, for benchmarks and data.synthetic: assigned to ranks and collated as
/// in training.
struct SyntheticSteps {
  LengthHistogram lengths = {};  // longer ones are cut to max_seq_tokens; empty: all have that
  int64_t max_seq_tokens = 512;
  int64_t max_masked_per_seq = 76;
  int64_t vocab_size = 30522;          // above the [MASK] id, 103
  int64_t global_batch_seqs = 0;       // read when tokens_per_micro_batch is 0
  int64_t tokens_per_micro_batch = 0;  // per rank, in as many sequences as necessary, the last
                                       // cut to fit
  int64_t micro_batches_per_step = 1;
  ExchangePadding exchange = ExchangePadding::kLengths;
  int64_t group_bucket_tokens = 128;
  uint64_t seed = 0;
  int num_ranks = 1;
};

struct SyntheticSequence {
  int64_t slot = 0;  // in the step
  int64_t tokens = 0;
};

/// Who trains on what in one step, the same on every rank.
struct SyntheticPlan : StepCounts {
  std::vector<std::vector<SyntheticSequence>> bins;  // bins[m * W + r]: micro-batch m of rank r
};

/// Masked tokens of a sequence: 15 %, at least one, at most max_masked_per_seq.
int64_t masked_tokens_of(const SyntheticSteps& steps, int64_t tokens);

/// With tokens_per_micro_batch every bin has at most that many tokens, and at most two fewer (with
/// ExchangePadding::kOff, which does not balance lengths, it may have less).
///
/// Random    a pure function of the arguments.
/// Errors    Error(kUsage) for a vocabulary without the special ids, and for a number of tokens
///           that no sequence fits in.
SyntheticPlan plan_synthetic_step(const SyntheticSteps& steps, int64_t step);

/// Appends a sample: word ids by a Zipf law, 15 % of them masked as the published generator does,
/// of these 80 % as [MASK], 10 % as another id, 10 % unchanged. Of `steps` it takes
/// max_masked_per_seq and vocab_size.
void append_synthetic_sample(const SyntheticSteps& steps, const SyntheticSequence& sequence,
                             Draws& draws, SampleSet& set);

/// The batch of one rank.
///
/// Random    a pure function of the arguments, allocation aside.
StepBatch make_synthetic_batch(const SyntheticSteps& steps, const SyntheticPlan& plan, int rank,
                               const HostAllocator& allocate);

/// Which steps of SyntheticSteps a rank is given.
struct SyntheticRun {
  int rank = 0;
  int64_t first_step = 0;  // resume: earlier batches are not generated
  int64_t num_steps = 0;
  int64_t prefetch_steps = 2;  // batches ready ahead of the consumer
  // Number of steps after which the sequence lengths repeat, with other words each time; 0: each
  // step has its own lengths.
  int64_t distinct_lengths = 0;
};

/// Generates batches on a separate thread, without a file. No sequence occurs twice: the epoch is
/// the whole run.
///
/// Random    step k depends on (seed, k), and its assignment to ranks as in training.
/// Errors    next() rethrows the errors of plan_synthetic_step(), on every rank.
/// Threads   as Pipeline, but no rank waits for another.
std::unique_ptr<Pipeline> make_synthetic_pipeline(const SyntheticSteps& steps,
                                                  const SyntheticRun& run, HostAllocator allocate);

/// A synthetic evaluation set of steps.global_batch_seqs sequences: one rank's part, in batches
/// of at most `batch_seqs`. The set is the same for every number of ranks. Errors as above.
std::vector<HostBatch> make_synthetic_eval_batches(SyntheticSteps steps, int64_t batch_seqs,
                                                   int rank, const HostAllocator& allocate);

/// The first batch of `inner` as every step from `first_step` on, `num_steps` times.
std::unique_ptr<Pipeline> repeat_first_batch(std::unique_ptr<Pipeline> inner, int64_t first_step,
                                             int64_t num_steps);

}  // namespace bertha

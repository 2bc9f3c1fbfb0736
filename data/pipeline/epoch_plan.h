#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace bertha {

/// One sample of a window: which of the window's shards, and the row in it.
struct ShardRow {
  int32_t shard_in_window = 0;
  int32_t row = 0;
};

/// A run of the endless sample order together with the shards that it needs.
struct SampleWindow {
  int64_t epoch = 0;
  int64_t first_place = 0;      // place of shards[0] in the shard order of the epoch
  std::vector<int64_t> shards;  // [s]  indices into the sorted list of shards
  std::vector<ShardRow> order;  // [n]  the samples, in order
};

/// The endless order of samples, window by window.
///
/// Random    a pure function of the options: no clock, no state outside, the same on all machines.
/// Exact     the orders are part of what a checkpoint's step number means; known answers in
///           tests/data/pipeline/epoch_plan_test.cpp.
class SampleWindows {
 public:
  virtual ~SampleWindows() = default;
  virtual SampleWindow next() = 0;
};

/// The order of SampleOrder::kWindowed: in each epoch the shards are shuffled, and the samples are
/// shuffled inside windows of `window_shards` consecutive shards. Every sample comes once per
/// epoch; epochs follow each other without a gap, so a batch may straddle two of them.
struct WindowedOrder {
  uint64_t seed = 0;
  std::vector<int64_t> shard_seqs;  // samples of each shard; at least one sample in all
  int64_t window_shards = 4;
  int64_t first_position = 0;  // in the endless order; samples before it are left out
};
std::unique_ptr<SampleWindows> make_windowed_order(WindowedOrder options);

/// The order of one rank under SampleOrder::kPublished, which depends on the number of ranks. In
/// every epoch the shards are shuffled as Python's random.Random(seed of the epoch) does;
/// in round f = 0 .. F - 1 rank r takes shard (f * W + r) mod F of that list, and for W > F shard
/// (f * (W + W mod F) + r) mod F; it shuffles its samples and drops the last ones that do not fill
/// `batch_seqs`. The seeds of the epochs come from random.Random(seed) after W worker seeds.
///
/// Unlike    the published run_pretraining.py, which shuffles the samples of a shard with PyTorch,
///           ends each epoch before round F - 1, and leaves out the first of the epochs' seeds.
/// Source    NVIDIA's run_pretraining.py of MLPerf Training 1.0 to 2.1.
struct PublishedOrder {
  uint64_t seed = 0;
  std::vector<int64_t> shard_seqs;  // at least one shard of batch_seqs samples or more
  int rank = 0;
  int num_ranks = 1;
  int64_t batch_seqs = 1;      // samples that one rank takes at a time
  int64_t first_position = 0;  // in this rank's order
};
std::unique_ptr<SampleWindows> make_published_order(PublishedOrder options);

/// The order of the shards in one epoch of the windowed order.
std::vector<int64_t> shuffled_shards(uint64_t seed, int64_t epoch, int64_t num_shards);

}  // namespace bertha

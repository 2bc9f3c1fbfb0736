#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/format/sample.h"
#include "data/pipeline/dynamic_masks.h"
#include "data/pipeline/epoch_plan.h"
#include "data/pipeline/transport.h"

namespace bertha {

/// The shards of a data set and where their samples begin in the numbering of all samples.
struct ShardTable {
  std::vector<std::string> paths;  // [s]
  std::vector<int64_t> num_seqs;   // [s]
  std::vector<int64_t> first_ids;  // [s]  global id of row 0
  std::vector<std::string> xxh3;   // [s]  hashes of the original files; empty = unknown
  int64_t total_seqs = 0;
};

/// Reads all of shard s.
///
/// Errors    Error(kData) naming it: another hash, damaged, or changed since the table was built.
SampleSet read_shard(const ShardTable& table, int64_t s, const SampleLimits& limits);

/// Looks into every shard; the ranks share the work and end with the same table, or with the same
/// error. Collective. `xxh3` is empty or has an entry per path.
///
/// Errors    Error(kData) naming the shard, if ranks see shards of other names, and when no shard
///           or no sample exists.
ShardTable inspect_shards(const std::vector<std::string>& paths,
                          const std::vector<std::string>& xxh3, Transport& transport);

/// Sequences [begin, end) of a step: rank r's slice of the global batch. G need not divide by W.
struct Slice {
  int64_t begin = 0;
  int64_t end = 0;
};
Slice even_slice(int64_t total, int64_t part, int64_t num_parts);

/// Which samples of a step this rank brings, before any exchange.
struct ShardAssignment {
  /// kBySlice   its slice of the batch: nothing needs to move, but all shards are read by all
  ///            ranks.
  /// kByShard   samples of its own shards (place in the epoch's shard order mod W): every shard is
  ///            read by one rank, and the exchange, which assigns the samples anew in any case,
  ///            moves them. The batches are the same.
  /// kOwnOrder  the order is this rank's alone (SampleOrder::kPublished); it fills its slice.
  enum class Rule : uint8_t { kBySlice, kByShard, kOwnOrder };

  Rule rule = Rule::kBySlice;
  int64_t global_batch_seqs = 0;
  int rank = 0;
  int num_ranks = 1;
};

/// A window of the order, with the shards of it that this rank needs.
struct LoadedWindow {
  SampleWindow plan;
  std::vector<std::shared_ptr<const SampleSet>> shards;  // [plan.shards]  null: another rank's
};

/// Reads window after window. A shard that is still in use from the window before is not read
/// again, so that a data set of one window is read once.
///
/// Errors    Error(kData) naming the shard.
class WindowReader {
 public:
  WindowReader(const ShardTable& table, const SampleLimits& limits,
               const ShardAssignment& assignment, std::unique_ptr<SampleWindows> windows);
  /// Returns nothing if `stop`, called before each shard, returns true.
  std::optional<LoadedWindow> next(const std::function<bool()>& stop);

 private:
  std::shared_ptr<const SampleSet> load(int64_t shard);

  const ShardTable& table_;
  SampleLimits limits_;
  ShardAssignment assignment_;
  std::unique_ptr<SampleWindows> windows_;
  std::map<int64_t, std::weak_ptr<const SampleSet>> in_memory_;
};

/// This rank's samples for one step. Slots are places in the global batch, 0 .. G - 1.
struct StepSamples {
  int64_t step = 0;
  int64_t epoch = 0;           // epoch of the step's first sample
  std::vector<int64_t> slots;  // [n]  ascending
  SampleSet samples;           // [n]
};

/// Cuts the windows into steps.
class StepAssembler {
 public:
  /// `next_window` returns nothing if the pipeline is being closed. `masks` draws the masks of the
  /// samples; without it they keep the masks of the shards.
  StepAssembler(const ShardAssignment& assignment, int64_t first_step,
                std::function<std::optional<LoadedWindow>()> next_window,
                std::optional<MaskDrawer> masks);
  /// Returns nothing if next_window returned nothing.
  std::optional<StepSamples> next();

 private:
  bool is_mine(int64_t slot, const ShardRow& sample) const;

  ShardAssignment assignment_;
  Slice slice_;
  int64_t step_;
  std::function<std::optional<LoadedWindow>()> next_window_;
  std::optional<MaskDrawer> masks_;
  LoadedWindow window_;
  size_t taken_ = 0;             // samples of the window
  SampleLength length_of_step_;  // expected
};

}  // namespace bertha

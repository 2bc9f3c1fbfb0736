#pragma once

#include <memory>
#include <span>

#include "kernels/base/device.h"
#include "kernels/base/view.h"

namespace bertha {

/// One of several reduce-scatters.
struct ScatterSum {
  View full;   // [P]
  View shard;  // [P/S]
};

/// Reduce-scatters of views times a factor per rank, in which the views are sent before the factor
/// is known. Destroy it before the collectives that created it.
class ScaledSums {
 public:
  virtual ~ScaledSums() = default;
  /// `full` stays as it is until its sum, which is the next one. Optional.
  virtual void send_ahead(const View& full) = 0;
  /// reduce_scatter_sum of each full view times this rank's factor, f32 [1].
  virtual void reduce_scatter(std::span<const ScatterSum> sums, const View& factor) = 0;
};

/// Communication between ranks: sums, maxima and gathers of views, one after another on separate
/// streams. To order them with compute, record an Event there and `wait_for` it here, and the
/// reverse.
///
/// Letters   W = ranks, S = shards, P = elements of the full view, P % S == 0.
/// Dtypes    f64, f32, f16, bf16, i64; maxima are of i32.
/// Exact     with W == 1 each is a copy; sums on the CPU are deterministic for a fixed W.
/// Errors    Error(kEnvironment) that names the call; a dead peer ends the job.
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Into how many shards a full view is divided, and this rank's: one for each rank, in rank
  /// order, unless ranks form groups. Ranks may have copies of a shard: the first of them counts it
  /// in sums over shards, and saves it.
  virtual int shard_count() const { return size(); }  // S
  virtual int shard() const { return rank(); }
  virtual bool is_first_of_shard() const { return true; }

  /// The stream of all-reduces: work enqueued on it follows them.
  virtual Stream& stream() = 0;
  /// Later calls begin after the event.
  virtual void wait_for(const Event& event) { stream().wait_for(event); }
  /// Records the event after all calls so far.
  virtual void record(Event& event) { stream().record(event); }
  /// Memory of `device`, zeroed, that all_gather fills fastest. Every rank calls it for as many
  /// bytes, and gathers to the same place of it. Destroy it before the collectives.
  virtual Buffer allocate_shared(Device& device, int64_t bytes) { return device.allocate(bytes); }
  /// Error(kEnvironment) when communication has failed asynchronously. Never blocks; any
  /// thread may call it.
  virtual void check() {}

  /// shard [P/S] = the rank's part of the sum over ranks of full [P]; it lies apart from full, or
  /// at its own place there. Where ranks form groups, full is scratch afterwards.
  virtual void reduce_scatter_sum(const View& full, const View& shard) = 0;

  /// Scaled sums with memory of `device` for views of the given number of bytes in all; null if
  /// these collectives do not offer them. All ranks call it, for as many bytes.
  virtual std::unique_ptr<ScaledSums> make_scaled_sums(Device&, int64_t /*bytes*/) {
    return nullptr;
  }

  /// full [P] = all shards [P/S] in their order; overlap as above.
  virtual void all_gather(const View& shard, const View& full) = 0;
  virtual void all_reduce_sum(const View& values) = 0;
  virtual void all_reduce_max(const View& values) = 0;
};

}  // namespace bertha

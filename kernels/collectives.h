#pragma once

#include "kernels/base/view.h"
#include "kernels/device.h"

namespace bertha {

/// The interface between ranks: sums, maxima and gathers of views, in the order of its own stream.
/// To order with compute: record an Event there and `stream().wait_for` it here, and the reverse.
///
/// Letters   W = ranks, P = elements of the full view, P % W == 0.
/// Dtypes    f64, f32, f16, bf16, i64; maxima are of i32.
/// Exact     with W == 1 each is a copy; sums on the CPU are deterministic for a fixed W.
/// Errors    Error(kEnvironment) that names the call; a dead peer ends the job.
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Stream& stream() = 0;
  /// Memory of `device`, zeroed, that all_gather fills fastest. Every rank calls it for as many
  /// bytes, and gathers to the same place of it. Destroy it before the collectives.
  virtual Buffer allocate_shared(Device& device, int64_t bytes) { return device.allocate(bytes); }
  /// Error(kEnvironment) when communication has failed asynchronously. Never blocks; any
  /// thread may call it.
  virtual void check() {}

  /// shard [P/W] = the rank's part of the sum over ranks of full [P]; they may overlap in place.
  virtual void reduce_scatter_sum(const View& full, const View& shard) = 0;
  /// full [P] = the shards [P/W] of all ranks in rank order; they may overlap in place.
  virtual void all_gather(const View& shard, const View& full) = 0;
  virtual void all_reduce_sum(const View& values) = 0;
  virtual void all_reduce_max(const View& values) = 0;
};

}  // namespace bertha

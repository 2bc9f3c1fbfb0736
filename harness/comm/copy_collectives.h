#pragma once

#include <cstdint>
#include <memory>

#include "harness/comm/world.h"
#include "kernels/base/device.h"
#include "kernels/collectives.h"

namespace bertha {

/// Maximum number of ranks that send each other copies.
inline constexpr int kMostCopyRanks = 8;

struct CopyOptions {
  /// Where copies are impossible: kWherePossible takes the others, kAlways throws.
  enum class Use : uint8_t { kWherePossible, kAlways };
  Use use = Use::kWherePossible;
  /// Where slices of the other ranks arrive, on each GPU: what is larger comes in several rounds.
  int64_t staging_bytes = int64_t{128} << 20;
  bool log = true;  // what is used, on the first rank
};

/// Collectives of the GPUs of one machine whose large ones are copies from GPU to GPU. Copy engines
/// make them, so that the model's kernels keep every SM: a reduce-scatter sends each rank its
/// slices, and a kernel only sums what has arrived, times the factors of the ranks where sums are
/// scaled; an all-gather is copies alone. The rest goes to
/// `others`, whose stream they share. Making and destroying them are collective calls; destroy them
/// before `device`.
///
/// Copied    reduce_scatter_sum of f32, f16 and bf16 with shards of whole 16 bytes; all_gather into
///           memory of allocate_shared.
/// Exact     a sum is taken in f32 in the order of the ranks and rounded once, by the rank that
///           owns it: the same bits at every run.
/// Needs     ranks on one machine, at most kMostCopyRanks, that reach each other's memory.
///           Elsewhere `others` itself comes back, or, where they are to be used always,
///           Error(kEnvironment) on every rank. The views of a call have the same alignment on
///           every rank, for each rank decides by itself whether it is copied.
/// Errors    when a peer is gone the stream keeps waiting, as with NCCL; the launcher or the
///           watchdog ends the job.
///
/// A step of BERT-large on four H200s takes 88.6 ms with copies, 90.3 with NCCL
/// (kernels/measured/step.md). A copy runs at 300 GB/s.
std::unique_ptr<Collectives> make_copy_collectives(World& world, Device& device,
                                                   std::unique_ptr<Collectives> others,
                                                   const CopyOptions& options);

}  // namespace bertha

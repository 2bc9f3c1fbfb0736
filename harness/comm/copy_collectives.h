#pragma once

#include <cstdint>
#include <memory>

#include "harness/comm/world.h"
#include "kernels/base/device.h"
#include "kernels/collectives.h"

namespace bertha {

/// Maximum number of ranks that send each other copies.
inline constexpr int kMaxCopyRanks = 8;

struct CopyOptions {
  /// If copies are impossible, kWherePossible uses the other collectives and kAlways throws.
  enum class Use : uint8_t { kWherePossible, kAlways };
  Use use = Use::kWherePossible;
  /// Buffer on each GPU for the slices of other ranks; larger data are sent in several rounds.
  int64_t staging_bytes = int64_t{128} << 20;
  bool log = true;  // rank 0 logs which collectives are used
};

/// Collectives of the GPUs of one machine that send large views by copies from GPU to GPU. Copy
/// engines execute these, so that the model's kernels can use every SM: a reduce-scatter sends each
/// rank its slices, and a kernel only sums the received slices, times the ranks' factors in scaled
/// sums; an all-gather consists of copies alone. Other calls go to `others`, whose stream they
/// share. Creation and destruction are collective calls; destroy them before `device`.
///
/// Copied    reduce_scatter_sum of f32, f16 and bf16 with shards of whole 16 bytes; all_gather into
///           memory of allocate_shared.
/// Exact     the rank that owns a sum computes it in f32 in the order of the ranks and rounds it
///           once: the same bits in every run.
/// Needs     ranks on one machine, at most kMaxCopyRanks, that reach each other's memory.
///           Otherwise returns `others` itself or, with kAlways, throws Error(kEnvironment) on
///           every rank. The views of a call have the same alignment on every rank because each
///           rank decides alone whether it is copied.
/// Errors    if a peer has ended the stream keeps waiting, as with NCCL; the launcher or the
///           watchdog ends the job.
///
/// A step of BERT-large on four H200s takes 88.6 ms with copies, 90.3 with NCCL
/// (kernels/measured/step.md). A copy runs at 300 GB/s.
std::unique_ptr<Collectives> make_copy_collectives(World& world, Device& device,
                                                   std::unique_ptr<Collectives> others,
                                                   const CopyOptions& options);

}  // namespace bertha

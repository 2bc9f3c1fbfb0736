#pragma once

#include <memory>

#include "harness/comm/world.h"
#include "kernels/base/device.h"
#include "kernels/collectives.h"

namespace bertha {

struct NcclOptions {
  /// SMs that one call may occupy next to the model's kernels; 0 = NCCL's choice.
  /// Two H200s, NCCL 2.28, reduce-scatter / all-gather of 704 MiB bf16 in ms:
  /// 0: 1.41 / 1.30, 8: 2.68 / 2.40, 4: 5.11 / 4.68.
  int max_ctas = 0;
  Stream* stream = nullptr;  // must outlive the collectives; null = a new high-priority stream
};

/// Collectives on GPU memory over NCCL, one rank per GPU, on a high-priority stream. Each call
/// enqueues and returns. Creation and destruction are collective calls; destroy them before
/// `device`.
///
/// Dtypes    sums of f64, f32, f16, bf16, i64; gathers of every dtype.
/// In place  the shard is in its own rank's slot or outside the full view, never in between.
/// Exact     every rank has the same bits; NCCL chooses the order of a sum, the same in every run
///           on the same machines. f16 and bf16 sums may round at every addition.
/// Errors    Error(kEnvironment) that names the call, also for a failure of an earlier one. If a
///           peer dies, the launcher ends this process; if it hangs, the stream blocks until
///           the watchdog ends the job.
/// Multicast NVLink SHARP is off unless NCCL_NVLS_ENABLE is set: a program that is stopped while
///           using it can make the GPUs of the node unusable.
///
/// Error(kEnvironment) in a program that was built without NCCL.
std::unique_ptr<Collectives> make_nccl_collectives(World& world, Device& device,
                                                   const NcclOptions& options);

}  // namespace bertha

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
  Stream* stream = nullptr;  // theirs, which outlives them; null = an urgent one of their own
};

/// Collectives on GPU memory over NCCL, one rank per GPU, on an urgent stream of their own. Each
/// call enqueues and returns. Making and destroying them are collective calls; destroy them before
/// `device`.
///
/// Dtypes    sums of f64, f32, f16, bf16, i64; gathers of every dtype.
/// In place  the shard at its own rank's slot, or apart from the full view; nothing between.
/// Exact     every rank has the same bits; the order of a sum is NCCL's choice and the same at
///           every run on the same machines. f16 and bf16 sums may round at every addition.
/// Errors    Error(kEnvironment) that names the call, also for a failure of an earlier one. When a
///           peer dies, the launcher ends this process; when it hangs, the stream blocks until
///           the watchdog ends the job.
/// Multicast NVLink SHARP stays off unless NCCL_NVLS_ENABLE is set: a program that is stopped while
///           it uses it can take the GPUs of the node out of service.
///
/// Error(kEnvironment) in a program that was built without NCCL.
std::unique_ptr<Collectives> make_nccl_collectives(World& world, Device& device,
                                                   const NcclOptions& options);

}  // namespace bertha

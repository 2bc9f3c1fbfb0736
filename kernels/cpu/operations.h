#pragma once

#include "kernels/base/view.h"
#include "kernels/cpu/worker_pool.h"

namespace bertha {

/// One operation on the threads of `pool`; its arguments have been validated. Each type of
/// arguments has its specialization, in the file of the operation.
template <class Args>
void run_cpu(WorkerPool& pool, const Args& args);

/// The CPU backend stores activations, weights and gradients as f32.
///
/// Errors    Error(kUsage) that names operation, field and dtype found.
inline void require_f32(const char* operation, const char* field, const View& view) {
  if (view.dtype == DType::kF32) return;
  fail(ExitCode::kUsage, operation, ": ", field, " is ", name(view.dtype),
       ", but the CPU backend computes in f32 only; train in f32 or choose another backend.");
}

}  // namespace bertha

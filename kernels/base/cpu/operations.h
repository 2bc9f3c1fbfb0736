#pragma once

#include "kernels/base/cpu/worker_pool.h"
#include "kernels/base/view.h"

namespace bertha {

/// One operation on the threads of `pool`; its arguments have been validated. Each type of
/// arguments has its specialization, in the file of the operation.
template <class Args>
void run_cpu(WorkerPool& pool, const Args& args);

/// Refuses activations, weights and gradients of other dtypes than f32.
///
/// Errors    Error(kUsage) that names operation, field and dtype found.
inline void require_f32(const char* operation, const char* field, const View& view) {
  if (view.dtype == DType::kF32) return;
  fail(ExitCode::kUsage, operation, ": ", field, " is ", name(view.dtype),
       ", but on the CPU this operation needs f32; convert it or choose another backend.");
}

}  // namespace bertha

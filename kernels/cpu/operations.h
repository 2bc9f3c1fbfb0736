#pragma once

#include "kernels/cpu/worker_pool.h"

namespace bertha {

/// One operation on the threads of `pool`; its arguments have been validated. Each type of
/// arguments has its specialization, in the file of the operation.
template <class Args>
void run_cpu(WorkerPool& pool, const Args& args);

}  // namespace bertha

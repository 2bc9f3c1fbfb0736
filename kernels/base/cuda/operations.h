#pragma once

#include "kernels/base/cuda/cuda_context.h"

namespace bertha {

/// Enqueues one operation on context.stream and waits for nothing; its arguments have been
/// validated. Each type of arguments has its specialization, in the file of the operation.
template <class Args>
void run_cuda(CudaContext& context, const Args& args);

}  // namespace bertha

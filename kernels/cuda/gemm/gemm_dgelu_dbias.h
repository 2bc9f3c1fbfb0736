#pragma once

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops/linear.h"

namespace bertha {

// The data gradient of a feed-forward block's second GEMM, with gelu' and the bias gradient of
// the first one, by a kernel of our own (gemm_dgelu_dbias.cu).

/// Enqueues a call that own_gemm_dgelu_dbias_from() gives it.
void run_gemm_dgelu_dbias(CudaContext& context, const LinearBwdData& args);

}  // namespace bertha

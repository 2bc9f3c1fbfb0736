#pragma once

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops/linear.h"

namespace bertha {

// The GEMM of a feed-forward block with bias and GELU in its epilogue, by a kernel of our own
// (gemm_bias_gelu.cu) instead of cublasLt with its epilogue.

/// Enqueues a call that own_gemm_bias_gelu_from() gives it. GELU is taken of the rounded
/// pre-activation, as it is stored.
void run_gemm_bias_gelu(CudaContext& context, const LinearFwd& args);

}  // namespace bertha

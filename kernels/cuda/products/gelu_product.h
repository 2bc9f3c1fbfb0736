#pragma once

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops/linear.h"

namespace bertha {

// The product of a feed-forward block that ends in a GELU, by a kernel of our own
// (gelu_product.cu) instead of cublasLt with its epilogue.

/// Enqueues a call that own_gelu_product_from() gives it. GELU is taken of the rounded pre-activation, as it is stored.
void run_gelu_product(CudaContext& context, const LinearFwd& args);

}  // namespace bertha

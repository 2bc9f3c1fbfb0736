#pragma once

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops/linear.h"

namespace bertha {

// The product of a feed-forward block that ends in a GELU, by a kernel of our own
// (gelu_product.cu) instead of cublasLt with its epilogue.

/// Whether the kernel takes the call: a fixed rule, so that the same call takes the same kernel in
/// every run, tuned or not. It needs
///   the tanh form of GELU, f16 or bf16, a bias;
///   N a multiple of 256, K of 64, matrices at multiples of 16 bytes;
///   unless options.gelu_products asks for it, enough rows for 2 tiles of 128 x 256 in turn on each
///   multiprocessor, where it was measured to be faster.
bool gelu_product_serves(const CudaContext& context, const LinearFwd& args);

/// Enqueues a call that is served. GELU is taken of the rounded pre-activation, as it is stored.
void run_gelu_product(CudaContext& context, const LinearFwd& args);

}  // namespace bertha

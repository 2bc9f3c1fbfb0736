#pragma once

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops/linear.h"

namespace bertha {

// The data gradient of a feed-forward block's second product, with gelu' and the bias gradient of
// the first one, by a kernel of our own (gelu_gradient.cu).

/// Whether the kernel takes the call: a fixed rule, so that the same call takes the same kernel in
/// every run, tuned or not. It needs
///   the tanh form of GELU, f16 or bf16;
///   K a multiple of 128, N of 64, matrices at multiples of 16 bytes;
///   unless options.gelu_products asks for it, a bias gradient to sum, and enough rows for 4 tiles
///   of 256 x 128 in turn on each multiprocessor, where it was measured to be faster.
bool gelu_gradient_serves(const CudaContext& context, const LinearBwdData& args);

/// Enqueues a call that is served.
void run_gelu_gradient(CudaContext& context, const LinearBwdData& args);

}  // namespace bertha

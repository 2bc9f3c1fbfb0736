#pragma once

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops/linear.h"

namespace bertha {

// The data gradient of a feed-forward block's second product, with gelu' and the bias gradient of
// the first one, by a kernel of our own (gelu_gradient.cu).

/// Enqueues a call that own_gelu_gradient_from() gives it.
void run_gelu_gradient(CudaContext& context, const LinearBwdData& args);

}  // namespace bertha

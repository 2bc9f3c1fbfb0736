#pragma once

#include "kernels/cuda/cuda_context.h"
#include "kernels/ops.h"

namespace bertha {

// One launcher per operation, in the file of its name. Arguments have been validated; work is
// enqueued on context.stream, and nothing waits for the device.

void run_cuda(CudaContext& context, const EmbeddingFwd& args);
void run_cuda(CudaContext& context, const EmbeddingBwd& args);
void run_cuda(CudaContext& context, const LinearFwd& args);
void run_cuda(CudaContext& context, const LinearBwdData& args);
void run_cuda(CudaContext& context, const LinearBwdWeight& args);
void run_cuda(CudaContext& context, const ActivationBwd& args);
void run_cuda(CudaContext& context, const AttentionFwd& args);
void run_cuda(CudaContext& context, const AttentionBwd& args);
void run_cuda(CudaContext& context, const ResidualLnFwd& args);
void run_cuda(CudaContext& context, const ResidualLnBwd& args);
void run_cuda(CudaContext& context, const LayerNormFwd& args);
void run_cuda(CudaContext& context, const LayerNormBwd& args);
void run_cuda(CudaContext& context, const SoftmaxFwd& args);
void run_cuda(CudaContext& context, const SoftmaxBwd& args);
void run_cuda(CudaContext& context, const GatherRows& args);
void run_cuda(CudaContext& context, const ScatterAddRows& args);
void run_cuda(CudaContext& context, const CrossEntropy& args);
void run_cuda(CudaContext& context, const SumOfSquares& args);
void run_cuda(CudaContext& context, const ClipLocal& args);
void run_cuda(CudaContext& context, const LambPrepare& args);
void run_cuda(CudaContext& context, const LambMoments& args);
void run_cuda(CudaContext& context, const LambApply& args);
void run_cuda(CudaContext& context, const Cast& args);
void run_cuda(CudaContext& context, const Fill& args);
void run_cuda(CudaContext& context, const Scale& args);
void run_cuda(CudaContext& context, const GradientScale& args);
void run_cuda(CudaContext& context, const PreluFwd& args);
void run_cuda(CudaContext& context, const PreluBwd& args);
void run_cuda(CudaContext& context, const BatchNormReluFwd& args);
void run_cuda(CudaContext& context, const BatchNormReluBwd& args);

}  // namespace bertha

#pragma once

#include "kernels/ops/attention.h"
#include "kernels/ops/batch_norm_relu.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gather_scatter.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/op_set.h"
#include "kernels/ops/prelu.h"
#include "kernels/ops/reductions.h"
#include "kernels/ops/residual_ln.h"
#include "kernels/ops/softmax.h"

namespace bertha {

/// Every fused operation of a training step, in model order: `ops.run(LinearFwd{.x = x, ...})`.
using Ops = OpSet<  //
    EmbeddingFwd, EmbeddingBwd, LinearFwd, LinearBwdData, LinearBwdWeight, ActivationBwd,
    AttentionFwd, AttentionBwd, ResidualLnFwd, ResidualLnBwd, LayerNormFwd, LayerNormBwd,
    SoftmaxFwd, SoftmaxBwd, GatherRows, ScatterAddRows, CrossEntropy, SumOfSquares, ClipLocal,
    LambPrepare, LambMoments, LambApply, Cast, Fill, Scale, GradientScale, PreluFwd, PreluBwd,
    BatchNormReluFwd, BatchNormReluBwd>;

}  // namespace bertha

#pragma once

#include "kernels/ops/attention.h"
#include "kernels/ops/cross_entropy.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/embedding.h"
#include "kernels/ops/gather_scatter.h"
#include "kernels/ops/lamb.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/linear_quantize.h"
#include "kernels/ops/op_set.h"
#include "kernels/ops/quantize.h"
#include "kernels/ops/reductions.h"
#include "kernels/ops/residual_ln.h"

namespace bertha {

/// Every operation of a training step: `ops.run(LinearFwd{.x = x, ...})`.
using Ops = OpSet<  //
    EmbeddingFwd, EmbeddingBwd, LinearFwd, LinearBwdData, LinearBwdWeight, ActivationBwd,
    AttentionFwd, AttentionBwd, ResidualLnFwd, ResidualLnBwd, LayerNormFwd, LayerNormBwd,
    GatherRows, ScatterAddRows, CrossEntropy, SumOfSquares, ClipFactor, ClipLocal, LambPrepare,
    LambMoments, LambApply, Cast, Fill, Quantize, QuantizeWeights, LinearFwdQuantize,
    LinearBwdDataQuantize, UpdateScales, GradientScale>;

}  // namespace bertha

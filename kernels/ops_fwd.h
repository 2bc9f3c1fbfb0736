#pragma once

#include "kernels/base/op_set.h"

namespace bertha {

// The arguments of operations by name alone: what runs one includes its header, and what runs many
// kernels/ops.h.
struct ActivationBwd;
struct AdamWStep;
struct AttentionBwd;
struct AttentionFwd;
struct Cast;
struct ClipFactor;
struct ClipLocal;
struct CrossEntropy;
struct EmbeddingBwd;
struct EmbeddingFwd;
struct Fill;
struct GatherRows;
struct GradientScale;
struct LambApply;
struct LambMoments;
struct LambPrepare;
struct LambStep;
struct LayerNormBwd;
struct LayerNormFwd;
struct LinearBwdData;
struct LinearBwdDataQuantize;
struct LinearBwdWeight;
struct LinearFwd;
struct LinearFwdQuantize;
struct Quantize;
struct QuantizeWeights;
struct ResidualLnBwd;
struct ResidualLnFwd;
struct ScatterAddRows;
struct SumOfSquares;
struct UpdateScales;

/// Every operation of a training step: `ops.run(LinearFwd{.x = x, ...})`.
using Ops = OpSet<  //
    EmbeddingFwd, EmbeddingBwd, LinearFwd, LinearBwdData, LinearBwdWeight, ActivationBwd,
    AttentionFwd, AttentionBwd, ResidualLnFwd, ResidualLnBwd, LayerNormFwd, LayerNormBwd,
    GatherRows, ScatterAddRows, CrossEntropy, SumOfSquares, ClipFactor, ClipLocal, LambPrepare,
    LambMoments, LambApply, LambStep, AdamWStep, Cast, Fill, Quantize, QuantizeWeights,
    LinearFwdQuantize, LinearBwdDataQuantize, UpdateScales, GradientScale>;

}  // namespace bertha

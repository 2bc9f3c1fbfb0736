#pragma once

#include "kernels/ops/batch_norm_relu.h"
#include "kernels/ops/layer_norm.h"
#include "kernels/ops/op_set.h"
#include "kernels/ops/prelu.h"
#include "kernels/ops/softmax.h"

namespace bertha {

/// Operations over rows and channels that need no model: `ops.run(SoftmaxFwd{.x = x, ...})`.
using RowOps = OpSet<SoftmaxFwd, SoftmaxBwd, LayerNormFwd, LayerNormBwd, PreluFwd, PreluBwd,
                     BatchNormReluFwd, BatchNormReluBwd>;

}  // namespace bertha

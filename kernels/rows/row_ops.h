#pragma once

#include "kernels/base/op_set.h"
#include "kernels/rows/ops/batch_norm_relu.h"
#include "kernels/rows/ops/layer_norm.h"
#include "kernels/rows/ops/prelu.h"
#include "kernels/rows/ops/softmax.h"

namespace bertha {

/// Operations over rows and channels that need no model: `ops.run(SoftmaxFwd{.x = x, ...})`.
using RowOps = OpSet<SoftmaxFwd, SoftmaxBwd, LayerNormFwd, LayerNormBwd, PreluFwd, PreluBwd,
                     BatchNormReluFwd, BatchNormReluBwd>;

}  // namespace bertha

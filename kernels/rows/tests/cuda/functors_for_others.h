#pragma once

#include "kernels/base/view.h"

namespace bertha {
struct CudaContext;
}

namespace bertha::testing {

/// softmax(-x) of f16 [R, C], by functors that were compiled for other GPUs than the H100 and H200.
void negated_softmax(CudaContext& context, const View& x, const View& y);

}  // namespace bertha::testing

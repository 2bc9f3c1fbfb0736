#pragma once

#include <cstdint>

#include "kernels/base/bench/op_bench.h"
#include "kernels/ops_fwd.h"

namespace bertha {

/// FLOP/s of one large square GEMM, median. `flops` sizes it.
double gemm_roof(OpBench<Ops>& bench, double flops, int64_t launches);

}  // namespace bertha

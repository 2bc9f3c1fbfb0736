#include "kernels/bench/gemm_roof.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/figures.h"
#include "kernels/bench/case_parts.h"
#include "kernels/ops/linear.h"

namespace bertha {

double gemm_roof(OpBench<Ops>& bench, double flops, int64_t launches) {
  const auto side =
      std::clamp<int64_t>(static_cast<int64_t>(std::cbrt(flops / 2)) / 256 * 256, 256, 8192);
  const Rows square{.rows = side, .checked = 16, .columns = side};
  const OpCase gemm{
      .operation = "linear_fwd",
      .shape = square.text(),
      .tensors = {square.matrix("x", 1, 0), Rows{side, side, side}.matrix("weight", 1, 0),
                  square.matrix("y", 0, 0)},
      .call =
          [](const OpCall& c) {
            c.ops.run(LinearFwd{.x = c["x"],
                                .weight = c["weight"],
                                .bias = View(),
                                .y = c["y"],
                                .pre_activation = View()});
          },
      .flops = 2.0 * static_cast<double>(side * side * side)};
  const double us = percentile(bench.run(gemm, launches).times_us, 0.5);
  return us > 0 ? gemm.flops / us * 1e6 : 0;
}

}  // namespace bertha

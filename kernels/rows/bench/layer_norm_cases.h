#pragma once

#include <utility>
#include <vector>

#include "kernels/base/bench/case_parts.h"
#include "kernels/rows/ops/layer_norm.h"

namespace bertha {

/// layer_norm_fwd and layer_norm_bwd. `Set` is any OpSet that contains both.
template <class Set>
void add_layer_norm(const Rows& r, std::vector<BenchCase<Set>>& cases) {
  const auto forward = [](const BenchCall<Set>& c) {
    c.ops.run(LayerNormFwd{.x = c["x"],
                           .gamma = c["gamma"],
                           .beta = c["beta"],
                           .y = c["y"],
                           .mean = c["mean"],
                           .rstd = c["rstd"]});
  };
  cases.push_back({.operation = "layer_norm_fwd",
                   .shape = r.text(),
                   .tensors = {r.matrix("x", 1, 1), r.vector("gamma", 1), r.vector("beta", 1),
                               r.result("y", 1), r.statistic("mean"), r.statistic("rstd")},
                   .call = forward});
  const auto backward = [](const BenchCall<Set>& c) {
    c.ops.run(LayerNormBwd{.dy = c["dy"],
                           .x = c["x"],
                           .mean = c["mean"],
                           .rstd = c["rstd"],
                           .gamma = c["gamma"],
                           .dx = c["dx"],
                           .dgamma = c["dgamma"],
                           .dbeta = c["dbeta"],
                           .accumulate = kAdd});
  };
  BenchCase<Set> op = backward_case(
      cases.back(), "layer_norm_bwd",
      {r.gradient(), r.result("dx", 1), r.row_sum("dgamma"), r.row_sum("dbeta")}, backward);
  op["y"].passes = 0;
  cases.push_back(std::move(op));
}

}  // namespace bertha

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
    c.ops.run(LayerNormFwd{
        .x = c[0], .gamma = c[1], .beta = c[2], .y = c[3], .mean = c[4], .rstd = c[5]});
  };
  cases.push_back({.operation = "layer_norm_fwd",
                   .shape = r.text(),
                   .tensors = {r.matrix("x", 1, 1), r.vector("gamma", 1), r.vector("beta", 1),
                               r.result("y", 1), r.statistic("mean"), r.statistic("rstd")},
                   .call = forward});
  const auto backward = [](const BenchCall<Set>& c) {
    c.ops.run(LayerNormBwd{.dy = c[6],
                           .x = c[0],
                           .mean = c[4],
                           .rstd = c[5],
                           .gamma = c[1],
                           .dx = c[7],
                           .dgamma = c[8],
                           .dbeta = c[9],
                           .accumulate = kAdd});
  };
  BenchCase<Set> op = backward_case(
      cases.back(), "layer_norm_bwd",
      {r.gradient(), r.result("dx", 1), r.row_sum("dgamma"), r.row_sum("dbeta")}, backward);
  op.tensors[3].passes = 0;
  cases.push_back(std::move(op));
}

}  // namespace bertha

#include "kernels/ops/residual_ln.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "kernels/base/cpu/column_sums.h"
#include "kernels/base/cpu/operations.h"
#include "kernels/base/cpu/row_norm.h"
#include "kernels/cpu/dropout_rows.h"
#include "kernels/ops/quantize.h"

namespace bertha {
namespace {

/// The LayerNorm that gives the residual, if one does; its statistics are computed again, too.
std::optional<RowNorm<float>> norm_of_residual(const ResidualLnFwd& args) {
  if (!args.residual_norm.mean.has_data()) return std::nullopt;
  ResidualLnFwd before = args;
  before.gamma = args.residual_norm.gamma;
  before.beta = args.residual_norm.beta;
  before.mean = before.rstd = View();
  return RowNorm<float>(before);
}

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const ResidualLnFwd& args) {
  require_f32("residual_ln_fwd", "x", args.x);
  const int64_t hidden = args.x.extent(1);
  const float* x = args.x.as<float>();
  const float* bias = args.bias.as<float>();
  const float* residual = args.residual.as<float>();
  float* sum = args.sum.as<float>();
  float* y = args.y.as<float>();
  const RowNorm norm(args);
  const std::optional<RowNorm<float>> before = norm_of_residual(args);
  for_dropout_rows(
      pool, args.dropout, args.mask, MaskUse::kDraw, args.x,
      [&](int64_t row, const float* factor) {
        const int64_t at = row * hidden;
        const float* added = residual + at;
        if (before) {
          before->run(row, added, y + at);
          added = y + at;
        }
#pragma omp simd
        for (int64_t i = 0; i < hidden; ++i) {
          sum[at + i] = added[i] + (x[at + i] + bias[i]) * factor[i];
        }
        norm.run(row, sum + at, y + at);
      },
      args.dropout_rows);
  if (args.y_fp8.q.has_data()) run_cpu(pool, quantize_to(args.y_fp8, args.y));
  if (!args.is_y_needed) {  // a caller that reads it anyway gets NaN
    std::fill_n(y, args.y.elements(), std::numeric_limits<float>::quiet_NaN());
  }
}

template <>
void run_cpu(WorkerPool& pool, const ResidualLnBwd& args) {
  require_f32("residual_ln_bwd", "dy", args.dy);
  const int64_t hidden = args.dy.extent(1);
  const float* dy = args.dy.as<float>();
  float* dresidual = args.dresidual.as<float>();
  float* dx = args.dx.as<float>();
  ColumnSums sums(args.dy.extent(0), hidden, 3);
  const RowNormBackward norm(args, args.sum, sums);
  for_dropout_rows(pool, args.dropout, args.mask, MaskUse::kRead, args.dy,
                   [&](int64_t row, const float* factor) {
                     const int64_t at = row * hidden;
                     norm.run(row, dy + at, dresidual + at);
#pragma omp simd
                     for (int64_t i = 0; i < hidden; ++i)
                       dx[at + i] = dresidual[at + i] * factor[i];
                     add_row(dx + at, hidden, sums.block_of(row, 2));
                   });
  norm.write_sums(args);
  sums.write(2, args.accumulate, args.dbias.as<float>());
  if (args.dx_fp8.q.has_data()) run_cpu(pool, quantize_to(args.dx_fp8, args.dx));
}

}  // namespace bertha

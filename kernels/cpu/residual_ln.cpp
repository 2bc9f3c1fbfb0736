#include "kernels/ops/residual_ln.h"

#include <algorithm>
#include <optional>

#include "kernels/base/cpu/column_sums.h"
#include "kernels/base/cpu/operations.h"
#include "kernels/base/cpu/row_norm.h"
#include "kernels/cpu/dropout_rows.h"
#include "kernels/ops/quantize.h"

namespace bertha {
namespace {

/// The residual of ResidualLnFwd, row by row.
class ResidualRows {
 public:
  explicit ResidualRows(const ResidualLnFwd& args)
      : residual_(args.residual.as<float>()), hidden_(args.residual.extent(1)) {
    if (!args.residual_norm.mean.has_data()) return;
    ResidualLnFwd before = args;  // whose statistics are computed again, with the same bits
    before.gamma = args.residual_norm.gamma;
    before.beta = args.residual_norm.beta;
    before.mean = before.rstd = View();
    norm_.emplace(before);
  }

  void copy(int64_t row, float* to) const {
    const float* from = residual_ + row * hidden_;
    norm_ ? norm_->run(row, from, to) : static_cast<void>(std::copy(from, from + hidden_, to));
  }

 private:
  const float* residual_;
  int64_t hidden_;
  std::optional<RowNorm<float>> norm_;
};

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const ResidualLnFwd& args) {
  require_f32("residual_ln_fwd", "x", args.x);
  const int64_t hidden = args.x.extent(1);
  const float* x = args.x.as<float>();
  const float* bias = args.bias.as<float>();
  float* sum = args.sum.as<float>();
  float* y = args.y.as<float>();
  const RowNorm norm(args);
  const ResidualRows residual(args);
  for_dropout_rows(
      pool, args.dropout, args.mask, MaskUse::kDraw, args.x,
      [&](int64_t row, const float* factor) {
        const int64_t at = row * hidden;
        residual.copy(row, sum + at);
#pragma omp simd
        for (int64_t i = 0; i < hidden; ++i) sum[at + i] += (x[at + i] + bias[i]) * factor[i];
        norm.run(row, sum + at, y + at);
      },
      args.dropout_rows);
  if (args.y_fp8.q.has_data()) run_cpu(pool, quantize_to(args.y_fp8, args.y));
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

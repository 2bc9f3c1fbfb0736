#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/operations.h"
#include "kernels/cpu/require_f32.h"
#include "kernels/cpu/row_norm.h"

namespace bertha {

void run_cpu(WorkerPool& pool, const LayerNormFwd& args) {
  require_f32("layer_norm_fwd", "x", args.x);
  const int64_t columns = args.x.extent(1);
  const float* x = args.x.as<float>();
  float* y = args.y.as<float>();
  const RowNorm norm(args);
  pool.for_range(args.x.extent(0), ColumnSums::kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      norm.run(row, x + row * columns, y + row * columns);
    }
  });
}

void run_cpu(WorkerPool& pool, const LayerNormBwd& args) {
  require_f32("layer_norm_bwd", "dy", args.dy);
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const float* dy = args.dy.as<float>();
  float* dx = args.dx.as<float>();
  ColumnSums sums(rows, columns, 2);
  const RowNormBackward norm(args, args.x, sums);
  pool.for_range(rows, ColumnSums::kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      norm.run(row, dy + row * columns, dx + row * columns);
    }
  });
  norm.write_sums(args);
}

}  // namespace bertha

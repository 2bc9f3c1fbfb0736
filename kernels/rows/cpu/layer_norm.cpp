#include "kernels/rows/ops/layer_norm.h"
#include "kernels/base/cpu/column_sums.h"
#include "kernels/base/cpu/operations.h"
#include "kernels/base/cpu/row_norm.h"

namespace bertha {
namespace {

template <class T>
void run_forward(WorkerPool& pool, const LayerNormFwd& args) {
  const int64_t columns = args.x.extent(1);
  const T* x = args.x.as<T>();
  const T* residual = args.residual.has_data() ? args.residual.as<T>() : nullptr;
  T* sum = residual != nullptr ? args.sum.as<T>() : nullptr;
  T* y = args.y.as<T>();
  const RowNorm<T> norm(args);
  pool.for_range(args.x.extent(0), ColumnSums::kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * columns;
      if (residual != nullptr) {
        for (int64_t i = at; i < at + columns; ++i) sum[i] = x[i] + residual[i];
      }
      norm.run(row, (residual != nullptr ? sum : x) + at, y + at);
    }
  });
}

template <class T>
void run_backward(WorkerPool& pool, const LayerNormBwd& args) {
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  const T* dy = args.dy.as<T>();
  T* dx = args.dx.as<T>();
  ColumnSums sums(rows, columns, 2);
  const RowNormBackward<T> norm(args, args.x, sums);
  pool.for_range(rows, ColumnSums::kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      norm.run(row, dy + row * columns, dx + row * columns);
    }
  });
  norm.write_sums(args);
}

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const LayerNormFwd& args) {
  if (args.x.dtype == DType::kF64) return run_forward<double>(pool, args);
  require_f32("layer_norm_fwd", "x", args.x);
  run_forward<float>(pool, args);
}

template <>
void run_cpu(WorkerPool& pool, const LayerNormBwd& args) {
  if (args.dy.dtype == DType::kF64) return run_backward<double>(pool, args);
  require_f32("layer_norm_bwd", "dy", args.dy);
  run_backward<float>(pool, args);
}

}  // namespace bertha

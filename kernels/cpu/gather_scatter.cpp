#include <algorithm>

#include "kernels/base/cpu/operations.h"
#include "kernels/ops/gather_scatter.h"

namespace bertha {
namespace {

constexpr int64_t kBlockRows = 64;

int64_t checked_index(const View& indices, int64_t row, int64_t rows) {
  const int64_t index = indices.as<int32_t>()[row];
  BERTHA_CHECK(index >= -1 && index < rows, "indices[", row, "] = ", index,
               ", want -1 or a row in [0, ", rows, ")");
  return index;
}

}  // namespace

template <>
void run_cpu(WorkerPool& pool, const GatherRows& args) {
  require_f32("gather_rows", "source", args.source);
  const int64_t columns = args.source.extent(1);
  const float* source = args.source.as<float>();
  float* picked = args.picked.as<float>();
  pool.for_range(args.picked.extent(0), kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t index = checked_index(args.indices, row, args.source.extent(0));
      if (index < 0) {
        std::fill_n(picked + row * columns, columns, 0.0f);
      } else {
        std::copy_n(source + index * columns, columns, picked + row * columns);
      }
    }
  });
}

template <>
void run_cpu(WorkerPool& pool, const ScatterAddRows& args) {
  require_f32("scatter_add_rows", "rows", args.rows);
  const int64_t columns = args.rows.extent(1);
  const float* rows = args.rows.as<float>();
  float* target = args.target.as<float>();
  pool.for_range(args.rows.extent(0), kBlockRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t index = checked_index(args.indices, row, args.target.extent(0));
      if (index < 0) continue;
      const float* from = rows + row * columns;
      float* to = target + index * columns;
#pragma omp simd
      for (int64_t i = 0; i < columns; ++i) to[i] += from[i];
    }
  });
}

}  // namespace bertha

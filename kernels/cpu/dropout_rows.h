#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/column_sums.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/worker_pool.h"

namespace bertha {

/// work(row, factor) for every row of a matrix with the extents of `rows`, in the blocks that
/// ColumnSums sums over. factor f32 [columns]: the row's dropout, all 1 where nothing is dropped.
template <class Work>
void for_dropout_rows(WorkerPool& pool, const Dropout& dropout, const View& rows,
                      const Work& work) {
  const int64_t columns = rows.extent(1);
  const DropoutFactors dropout_factors(dropout);
  pool.for_range(rows.extent(0), ColumnSums::kBlockRows, [&](int64_t begin, int64_t end) {
    std::vector<float> factors(static_cast<size_t>(columns), 1.0f);
    for (int64_t row = begin; row < end; ++row) {
      if (dropout_factors.active()) dropout_factors.write(row * columns, columns, factors.data());
      work(row, factors.data());
    }
  });
}

}  // namespace bertha

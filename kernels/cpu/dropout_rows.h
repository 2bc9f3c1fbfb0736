#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/base/cpu/column_sums.h"
#include "kernels/base/cpu/dropout.h"
#include "kernels/base/cpu/worker_pool.h"

namespace bertha {

/// Whether the rows' dropout is decided and saved now, or was by the forward pass.
enum class MaskUse : uint8_t { kDraw, kRead };

/// work(row, factor) for every row of a matrix of `rows` times `columns`, in the blocks that
/// ColumnSums sums over. factor f32 [columns]: the row's dropout, all 1 without dropout.
/// mask: u8 [rows, columns / 8]. drawn_rows: see ResidualLnFwd::dropout_rows.
template <class Work>
void for_dropout_rows(WorkerPool& pool, const Dropout& dropout, const View& mask, MaskUse use,
                      const View& rows, const Work& work, const View& drawn_rows = {}) {
  const int64_t columns = rows.extent(1);
  const DropoutMask decisions(dropout);
  uint8_t* bits = decisions.active() ? mask.as<uint8_t>() : nullptr;
  pool.for_range(rows.extent(0), ColumnSums::kBlockRows, [&](int64_t begin, int64_t end) {
    std::vector<float> factors(static_cast<size_t>(columns), 1.0f);
    for (int64_t row = begin; row < end; ++row) {
      if (decisions.active()) {
        uint8_t* row_bits = bits + row * (columns / 8);
        if (use == MaskUse::kDraw) {
          const int64_t drawn = drawn_rows.has_data() ? drawn_rows.as<int32_t>()[row] : row;
          decisions.draw(std::max<int64_t>(drawn, 0) * columns, columns, row_bits);
        }
        decisions.write_factors(row_bits, columns, factors.data());
      }
      work(row, factors.data());
    }
  });
}

}  // namespace bertha

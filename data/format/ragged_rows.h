#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "data/format/global_heap.h"
#include "data/format/sample_check.h"
#include "kernels/base/error.h"

namespace bertha {

/// Makes `rows` as long as `offsets` say, row by row, reporting each row that is not.
template <class T>
void match_lengths(const char* dataset, const char* other, RaggedRows<T>& rows,
                   const std::vector<int64_t>& offsets, const ViolationReport& report) {
  if (rows.offsets == offsets) return;
  std::vector<T> values(static_cast<size_t>(offsets.back()));
  for (int64_t row = 0; row < rows.size(); ++row) {
    const auto i = static_cast<size_t>(row);
    const int64_t want = offsets[i + 1] - offsets[i];
    if (rows.length(row) != want) {
      report({.row = row,
              .dataset = dataset,
              .what = concat(rows.length(row), " elements, but ", other, " has ", want,
                             "; want as many")});
    }
    std::copy_n(rows.values.begin() + rows.offsets[i], std::min(rows.length(row), want),
                values.begin() + offsets[i]);
  }
  rows.values = std::move(values);
  rows.offsets = offsets;
}

}  // namespace bertha

#pragma once

#include "kernels/base/cuda/cuda_context.h"

namespace bertha {

// Gradients of embedding tables: rows of a matrix added to the table rows of their ids, in f32 and
// in a fixed order.

/// Bytes of scratch for add_rows_sorted.
int64_t sorted_rows_scratch_bytes(int64_t rows, int64_t columns);

/// table[ids[r]] += sum of rows[r], r in the order of `order`.
///
/// Exact     deterministic; sums in f32, one rounding per table element.
/// Needs     `order` ascending in (id, row), with -1 after the last; `scratch` as above.
struct SortedRows {
  View rows;   // io  [T, H]
  View ids;    // i32 [T]
  View order;  // i32 [T]
  View table;  // io  [V, H]  adds
  void* scratch;
};
void add_rows_sorted(CudaContext& context, const SortedRows& args);

/// The same without an order: every table row looks for its rows among all ids, which suits tables
/// of some hundred rows (positions).
struct ScannedRows {
  View rows;   // io  [T, H]
  View ids;    // i32 [T]
  View table;  // io  [P, H]  adds
};
void add_rows_scanned(CudaContext& context, const ScannedRows& args);

}  // namespace bertha

#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/arguments.h"
#include "kernels/base/cpu/worker_pool.h"

namespace bertha {

/// Sums over the rows of a matrix, kept in f64 per block of rows and combined in block order: the
/// result does not depend on the threads.
class ColumnSums {
 public:
  /// `quantities` sums of `columns` values each, over `rows` rows in blocks of kBlockRows.
  ColumnSums(int64_t rows, int64_t columns, int64_t quantities);

  static constexpr int64_t kBlockRows = 64;

  /// The partial sums of the block with this row: f64 [columns], zero at first.
  double* block_of(int64_t row, int64_t quantity) {
    return sums_.data() + ((row / kBlockRows) * quantities_ + quantity) * columns_;
  }

  /// target (+)= the sums of all blocks. T: float or double.
  template <class T>
  void write(int64_t quantity, Accumulate accumulate, T* target) const;

 private:
  int64_t blocks_;
  int64_t columns_;
  int64_t quantities_;
  std::vector<double> sums_;
};

/// sums[i] += values[i].
inline void add_row(const float* values, int64_t columns, double* sums) {
#pragma omp simd
  for (int64_t i = 0; i < columns; ++i) sums[i] += static_cast<double>(values[i]);
}

/// target (+)= column sums of values f32 [rows, columns].
void sum_columns(WorkerPool& pool, const View& values, Accumulate accumulate, const View& target);

}  // namespace bertha

#include "kernels/base/cpu/column_sums.h"

namespace bertha {

ColumnSums::ColumnSums(int64_t rows, int64_t columns, int64_t quantities)
    : blocks_((rows + kBlockRows - 1) / kBlockRows),
      columns_(columns),
      quantities_(quantities),
      sums_(static_cast<size_t>(blocks_ * columns * quantities), 0.0) {}

template <class T>
void ColumnSums::write(int64_t quantity, Accumulate accumulate, T* target) const {
  std::vector<double> total(static_cast<size_t>(columns_), 0.0);
  for (int64_t block = 0; block < blocks_; ++block) {
    const double* part = sums_.data() + (block * quantities_ + quantity) * columns_;
    for (int64_t i = 0; i < columns_; ++i) total[static_cast<size_t>(i)] += part[i];
  }
  const bool add = accumulate == Accumulate::kYes;
  for (int64_t i = 0; i < columns_; ++i) {
    const double before = add ? static_cast<double>(target[i]) : 0.0;
    target[i] = static_cast<T>(before + total[static_cast<size_t>(i)]);
  }
}

template void ColumnSums::write(int64_t, Accumulate, float*) const;
template void ColumnSums::write(int64_t, Accumulate, double*) const;

void sum_columns(WorkerPool& pool, const View& values, Accumulate accumulate, const View& target) {
  const int64_t rows = values.extent(0);
  const int64_t columns = values.extent(1);
  const float* from = values.as<float>();
  ColumnSums sums(rows, columns, 1);
  pool.for_range(rows, ColumnSums::kBlockRows, [&](int64_t begin, int64_t end) {
    double* block = sums.block_of(begin, 0);
    for (int64_t row = begin; row < end; ++row) add_row(from + row * columns, columns, block);
  });
  sums.write(0, accumulate, target.as<float>());
}

}  // namespace bertha

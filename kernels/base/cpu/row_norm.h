#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/base/cpu/column_sums.h"

namespace bertha {

// The row skeleton of LayerNorm, shared by layer_norm, residual_ln and embedding.

/// T: float, or double for f64.
template <class T>
struct RowStatistics {
  T mean = 0;
  T rstd = 0;  // 1 / standard deviation
  T rest = 0;  // rounding error of the mean: matters if the mean is much larger than the deviations
};

/// Sums of differences to a number, and of their squares.
struct Deviations {
  double differences = 0.0;
  double squares = 0.0;
};

/// The deviations of x [columns] from `from`. The halves of a long row are summed apart: if
/// elements have few digits and the mean too, as in rows of 2^k columns, squares end in the same
/// bits, and one long sum rounds each of them the same way.
template <class T>
Deviations deviations(const T* x, int64_t columns, double from) {
  constexpr int64_t kMaxColumns = 256;
  if (columns > kMaxColumns) {
    const int64_t half = columns / 2;
    const Deviations low = deviations(x, half, from);
    const Deviations high = deviations(x + half, columns - half, from);
    return {low.differences + high.differences, low.squares + high.squares};
  }
  double differences = 0.0;
  double squares = 0.0;
#pragma omp simd reduction(+ : differences, squares)
  for (int64_t i = 0; i < columns; ++i) {
    const double difference = static_cast<double>(x[i]) - from;
    differences += difference;
    squares += difference * difference;
  }
  return {differences, squares};
}

/// Two passes in f64.
template <class T>
RowStatistics<T> row_statistics(const T* x, int64_t columns, double epsilon) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < columns; ++i) sum += static_cast<double>(x[i]);
  const T mean = static_cast<T>(sum / static_cast<double>(columns));
  const auto [differences, squares] = deviations(x, columns, static_cast<double>(mean));
  const double rest = differences / static_cast<double>(columns);
  const double variance = std::max(0.0, squares / static_cast<double>(columns) - rest * rest);
  return {mean, static_cast<T>(1.0 / std::sqrt(variance + epsilon)), static_cast<T>(rest)};
}

/// gamma or beta of a LayerNorm; without data, the same value for every column.
template <class T>
class ColumnParameter {
 public:
  ColumnParameter(const View& view, int64_t columns, T otherwise)
      : given_(view.has_data() ? view.as<T>() : nullptr),
        otherwise_(given_ == nullptr ? static_cast<size_t>(columns) : 0, otherwise) {}

  const T* data() const { return given_ != nullptr ? given_ : otherwise_.data(); }

 private:
  const T* given_;
  std::vector<T> otherwise_;
};

/// The LayerNorm of an operation's forward pass, row by row.
template <class T = float>
class RowNorm {
 public:
  /// args: any operation's with y, gamma, beta, mean, rstd and epsilon.
  template <class Forward>
  explicit RowNorm(const Forward& args)
      : columns_(args.y.extent(1)),
        gamma_(args.gamma, columns_, T{1}),
        beta_(args.beta, columns_, T{0}),
        mean_(args.mean.has_data() ? args.mean.template as<T>() : nullptr),
        rstd_(args.rstd.has_data() ? args.rstd.template as<T>() : nullptr),
        epsilon_(static_cast<double>(args.epsilon)) {}

  /// y = (x - mean) * rstd * gamma + beta of one row, io [columns], and its statistics. y may be x.
  void run(int64_t row, const T* x, T* y) const {
    const RowStatistics<T> of_row = row_statistics(x, columns_, epsilon_);
    if (mean_ != nullptr) {
      mean_[row] = of_row.mean;
      rstd_[row] = of_row.rstd;
    }
    const T* gamma = gamma_.data();
    const T* beta = beta_.data();
    const int64_t columns = columns_;
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) {
      y[i] = ((x[i] - of_row.mean) - of_row.rest) * of_row.rstd * gamma[i] + beta[i];
    }
  }

 private:
  int64_t columns_;
  ColumnParameter<T> gamma_;
  ColumnParameter<T> beta_;
  T* mean_;
  T* rstd_;
  double epsilon_;
};

/// The LayerNorm of an operation's backward pass, row by row.
template <class T = float>
class RowNormBackward {
 public:
  /// args: any operation's with dy, gamma, mean, rstd, dgamma and dbeta. `x` is what forward
  /// normalized; the gradients of gamma and beta are the quantities 0 and 1 of `sums`.
  template <class Backward>
  RowNormBackward(const Backward& args, const View& x, ColumnSums& sums)
      : x_(x.as<T>()),
        columns_(args.dy.extent(1)),
        gamma_(args.gamma, columns_, T{1}),
        mean_(args.mean.template as<T>()),
        rstd_(args.rstd.template as<T>()),
        sums_(&sums) {}

  /// One row: dx = rstd * (g - mean(g) - n * mean(g * n)), with g = dy * gamma and
  /// n = (x - mean) * rstd; dy * n and dy are added to the sums. dx io [columns] may be dy.
  void run(int64_t row, const T* dy, T* dx) const {
    // Local copies: through `this` the vectorizer reloads every pointer for every element.
    const int64_t columns = columns_;
    const T* x = x_ + row * columns;
    const T* gamma = gamma_.data();
    const T mean = mean_[row];
    const T rstd = rstd_[row];
    double* dgamma = sums_->block_of(row, 0);
    double* dbeta = sums_->block_of(row, 1);
    double sum_g = 0.0;
    double sum_gn = 0.0;
#pragma omp simd reduction(+ : sum_g, sum_gn)
    for (int64_t i = 0; i < columns; ++i) {
      const T normalized = (x[i] - mean) * rstd;
      const T g = dy[i] * gamma[i];
      sum_g += static_cast<double>(g);
      sum_gn += static_cast<double>(g) * static_cast<double>(normalized);
      dgamma[i] += static_cast<double>(dy[i] * normalized);
      dbeta[i] += static_cast<double>(dy[i]);
    }
    const T mean_g = static_cast<T>(sum_g / static_cast<double>(columns));
    const T mean_gn = static_cast<T>(sum_gn / static_cast<double>(columns));
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) {
      const T normalized = (x[i] - mean) * rstd;
      dx[i] = rstd * (dy[i] * gamma[i] - mean_g - normalized * mean_gn);
    }
  }

  /// Writes the gradients of gamma and beta after all rows, each only if it has data.
  template <class Backward>
  void write_sums(const Backward& args) const {
    if (args.dgamma.has_data()) sums_->write(0, args.accumulate, args.dgamma.template as<T>());
    if (args.dbeta.has_data()) sums_->write(1, args.accumulate, args.dbeta.template as<T>());
  }

 private:
  const T* x_;
  int64_t columns_;
  ColumnParameter<T> gamma_;
  const T* mean_;
  const T* rstd_;
  ColumnSums* sums_;
};

}  // namespace bertha

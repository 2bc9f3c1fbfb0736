#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cpu/column_sums.h"

namespace bertha {

// The row skeleton of LayerNorm, shared by layer_norm, residual_ln and embedding.

struct RowStatistics {
  float mean = 0.0f;
  float rstd = 0.0f;  // 1 / standard deviation
};

/// Two passes in f64.
inline RowStatistics row_statistics(const float* x, int64_t columns, float epsilon) {
  double sum = 0.0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < columns; ++i) sum += static_cast<double>(x[i]);
  const double mean = sum / static_cast<double>(columns);
  double squares = 0.0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < columns; ++i) {
    const double difference = static_cast<double>(x[i]) - mean;
    squares += difference * difference;
  }
  const double variance = squares / static_cast<double>(columns);
  return {static_cast<float>(mean),
          static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(epsilon)))};
}

/// y = (x - mean) * rstd * gamma + beta. y may be x.
inline void normalize_row(const float* x, RowStatistics row, const float* gamma, const float* beta,
                          int64_t columns, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < columns; ++i) {
    y[i] = (x[i] - row.mean) * row.rstd * gamma[i] + beta[i];
  }
}

/// One row of the backward pass.
struct RowGradient {
  const float* dy = nullptr;     // f32 [columns]
  const float* x = nullptr;      // f32 [columns]
  const float* gamma = nullptr;  // f32 [columns]
  RowStatistics row;
  int64_t columns = 0;
  float* dx = nullptr;       // f32 [columns]  out; may be dy
  double* dgamma = nullptr;  // f64 [columns]  adds: dy * (x - mean) * rstd
  double* dbeta = nullptr;   // f64 [columns]  adds: dy
};

/// dx = rstd * (g - mean(g) - n * mean(g * n)), with g = dy * gamma and n = (x - mean) * rstd.
inline void normalize_row_backward(const RowGradient& args) {
  // Local copies: through `args` the vectorizer loads every pointer anew for every element.
  const float* dy = args.dy;
  const float* x = args.x;
  const float* gamma = args.gamma;
  float* dx = args.dx;
  double* dgamma = args.dgamma;
  double* dbeta = args.dbeta;
  const int64_t columns = args.columns;
  const float mean = args.row.mean;
  const float rstd = args.row.rstd;
  double sum_g = 0.0;
  double sum_gn = 0.0;
#pragma omp simd reduction(+ : sum_g, sum_gn)
  for (int64_t i = 0; i < columns; ++i) {
    const float normalized = (x[i] - mean) * rstd;
    const float g = dy[i] * gamma[i];
    sum_g += static_cast<double>(g);
    sum_gn += static_cast<double>(g) * static_cast<double>(normalized);
    dgamma[i] += static_cast<double>(dy[i] * normalized);
    dbeta[i] += static_cast<double>(dy[i]);
  }
  const float mean_g = static_cast<float>(sum_g / static_cast<double>(columns));
  const float mean_gn = static_cast<float>(sum_gn / static_cast<double>(columns));
#pragma omp simd
  for (int64_t i = 0; i < columns; ++i) {
    const float normalized = (x[i] - mean) * rstd;
    dx[i] = rstd * (dy[i] * gamma[i] - mean_g - normalized * mean_gn);
  }
}

/// The LayerNorm of an operation's forward pass, row by row.
class RowNorm {
 public:
  /// Of any operation's arguments with gamma, beta, mean, rstd and epsilon.
  template <class Forward>
  explicit RowNorm(const Forward& args)
      : gamma_(args.gamma.template as<float>()),
        beta_(args.beta.template as<float>()),
        mean_(args.mean.template as<float>()),
        rstd_(args.rstd.template as<float>()),
        columns_(args.gamma.extent(0)),
        epsilon_(args.epsilon) {}

  /// Writes y f32 [columns] and the statistics of one row from x f32 [columns].
  void run(int64_t row, const float* x, float* y) const {
    const RowStatistics statistics = row_statistics(x, columns_, epsilon_);
    mean_[row] = statistics.mean;
    rstd_[row] = statistics.rstd;
    normalize_row(x, statistics, gamma_, beta_, columns_, y);
  }

 private:
  const float* gamma_;
  const float* beta_;
  float* mean_;
  float* rstd_;
  int64_t columns_;
  float epsilon_;
};

/// The LayerNorm of an operation's backward pass, row by row.
class RowNormBackward {
 public:
  /// Of any operation's arguments with gamma, mean, rstd, dgamma and dbeta. `x` is what forward
  /// normalized; the gradients of gamma and beta are the quantities 0 and 1 of `sums`.
  template <class Backward>
  RowNormBackward(const Backward& args, const View& x, ColumnSums& sums)
      : x_(x.as<float>()),
        gamma_(args.gamma.template as<float>()),
        mean_(args.mean.template as<float>()),
        rstd_(args.rstd.template as<float>()),
        columns_(args.gamma.extent(0)),
        sums_(&sums) {}

  /// Writes dx f32 [columns] of one row from dy f32 [columns], which may be the same memory.
  void run(int64_t row, const float* dy, float* dx) const {
    normalize_row_backward({.dy = dy,
                            .x = x_ + row * columns_,
                            .gamma = gamma_,
                            .row = {mean_[row], rstd_[row]},
                            .columns = columns_,
                            .dx = dx,
                            .dgamma = sums_->block_of(row, 0),
                            .dbeta = sums_->block_of(row, 1)});
  }

  /// The gradients of gamma and beta, after all rows.
  template <class Backward>
  void write_sums(const Backward& args) const {
    sums_->write(0, args.accumulate, args.dgamma.template as<float>());
    sums_->write(1, args.accumulate, args.dbeta.template as<float>());
  }

 private:
  const float* x_;
  const float* gamma_;
  const float* mean_;
  const float* rstd_;
  int64_t columns_;
  ColumnSums* sums_;
};

}  // namespace bertha

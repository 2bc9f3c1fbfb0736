#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace bertha {

using Doubles = std::vector<double>;

struct NaiveNorm {
  Doubles y;
  Doubles mean;
  Doubles rstd;
};

struct NaiveNormInput {
  Doubles x;
  int64_t rows = 0;
  int64_t columns = 0;
  Doubles gamma;
  Doubles beta;
  double epsilon = 0.0;
};

/// LayerNorm by its definition, in f64.
inline NaiveNorm naive_layer_norm(const NaiveNormInput& in) {
  NaiveNorm out;
  for (int64_t row = 0; row < in.rows; ++row) {
    const double* x = in.x.data() + row * in.columns;
    double mean = 0.0;
    for (int64_t i = 0; i < in.columns; ++i) mean += x[i];
    mean /= static_cast<double>(in.columns);
    double variance = 0.0;
    for (int64_t i = 0; i < in.columns; ++i) variance += (x[i] - mean) * (x[i] - mean);
    variance /= static_cast<double>(in.columns);
    const double rstd = 1.0 / std::sqrt(variance + in.epsilon);
    out.mean.push_back(mean);
    out.rstd.push_back(rstd);
    for (int64_t i = 0; i < in.columns; ++i) {
      const size_t column = static_cast<size_t>(i);
      out.y.push_back((x[i] - mean) * rstd * in.gamma[column] + in.beta[column]);
    }
  }
  return out;
}

struct NaiveNormGradient {
  Doubles dx;
  Doubles dgamma;
  Doubles dbeta;
};

/// Through the whole Jacobian of the normalized row n:
/// d n[i] / d x[j] = rstd (delta(i, j) - 1 / C - n[i] n[j] / C).
inline NaiveNormGradient naive_layer_norm_backward(const NaiveNormInput& in, const Doubles& dy) {
  const NaiveNorm forward = naive_layer_norm(in);
  const size_t columns = static_cast<size_t>(in.columns);
  const double count = static_cast<double>(in.columns);
  NaiveNormGradient gradient{Doubles(in.x.size(), 0.0), Doubles(columns, 0.0),
                             Doubles(columns, 0.0)};
  Doubles normalized(columns);
  for (size_t row = 0; row < static_cast<size_t>(in.rows); ++row) {
    const size_t at = row * columns;
    for (size_t i = 0; i < columns; ++i) {
      normalized[i] = (in.x[at + i] - forward.mean[row]) * forward.rstd[row];
      gradient.dgamma[i] += dy[at + i] * normalized[i];
      gradient.dbeta[i] += dy[at + i];
    }
    for (size_t j = 0; j < columns; ++j) {
      double sum = 0.0;
      for (size_t i = 0; i < columns; ++i) {
        const double same = i == j ? 1.0 : 0.0;
        sum +=
            dy[at + i] * in.gamma[i] * (same - 1.0 / count - normalized[i] * normalized[j] / count);
      }
      gradient.dx[at + j] = sum * forward.rstd[row];
    }
  }
  return gradient;
}

}  // namespace bertha

#pragma once

namespace bertha {

/// Operands of LayerNorm forward of rows of 16 bits, without a residual.
template <class T>
struct PlainNorm {
  const T* x;      // [rows, columns]
  const T* gamma;  // [columns]; null: 1
  const T* beta;   // [columns]; null: 0
  T* y;            // [rows, columns]
  float* mean;     // [rows]
  float* rstd;     // [rows]
  float epsilon;
};

/// The same operands for a skeleton of rows (held_rows.cuh, leaving_rows.cuh), by its names.
template <class Operation, class T>
Operation operation_of(const PlainNorm<T>& p) {
  return {.inputs = {p.x},
          .output = p.y,
          .gamma = p.gamma,
          .beta = p.beta,
          .mean = p.mean,
          .rstd = p.rstd,
          .epsilon = p.epsilon};
}

}  // namespace bertha

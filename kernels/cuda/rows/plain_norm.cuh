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

}  // namespace bertha

#pragma once

#include "kernels/base/arguments.h"

namespace bertha {

/// Softmax cross-entropy over rows of logits, its gradient in place, and the accuracy count, in
/// one pass: for the masked-token and the sentence head, in training and evaluation.
///
/// Letters   M = rows, V = columns (padded), C = classes <= V.
/// Dtypes    io is one of f32, f16, bf16; sums f64; counts i64.
/// Writes    logits become gradient * gradient_scale (zero in rows with label -1 and in columns
///           [C, V)) when write_gradient; loss_sum, correct and rows_counted always add.
/// Exact     argmax ties go to the lowest id; columns [C, V) are ignored.
struct CrossEntropy {
  static constexpr const char* kName = "cross_entropy";
  View logits;          // io  [M, V]  in; out: gradient
  View labels;          // i32 [M]     in [-1, C); -1 = padding row
  View gradient_scale;  // f32 [1]     target of GradientScale
  View loss_sum;        // f64 [1]     adds: sum of -log p(label), natural log, unscaled
  View correct;         // i64 [1]     adds: rows whose argmax is the label
  View rows_counted;    // i64 [1]     adds: rows with label >= 0
  int64_t classes = 0;  // C
  bool write_gradient = true;
};

void validate(const CrossEntropy& args);

}  // namespace bertha

#include "kernels/ops/cross_entropy.h"

#include "kernels/base/check.h"

namespace bertha {

void validate(const CrossEntropy& args) {
  const ArgumentCheck check(CrossEntropy::kName);
  const RowsShape logits = check.matrix("logits", args.logits);
  check.view("labels", args.labels, DType::kI32, {logits.rows});
  if (args.write_gradient) check.view("gradient_scale", args.gradient_scale, DType::kF32, {1});
  check.view("loss_sum", args.loss_sum, DType::kF64, {1});
  check.views({{"correct", args.correct}, {"rows_counted", args.rows_counted}}, DType::kI64, {1});
  check.at_least("classes", args.classes, 1);
  check.at_most("classes", args.classes, logits.columns);
}

}  // namespace bertha

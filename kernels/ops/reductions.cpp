#include "kernels/ops/reductions.h"

#include "kernels/base/check.h"

namespace bertha {

void validate(const SumOfSquares& args) {
  const ArgumentCheck check(SumOfSquares::kName);
  check.io("values", args.values);
  check.view("values", args.values, args.values.dtype, {args.values.elements()});
  check.view("result", args.result, DType::kF64, {1});
}

}  // namespace bertha

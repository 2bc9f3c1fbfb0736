#include "kernels/ops/elementwise.h"

#include "kernels/base/check.h"
#include "kernels/ops/lamb.h"

namespace bertha {
namespace {

void check_data(const ArgumentCheck& check, const char* field, const View& view) {
  if (view.data == nullptr && view.elements() > 0) check.refuse(field, "has no data");
}

}  // namespace

void validate(const Cast& args) {
  const ArgumentCheck check(Cast::kName);
  check.floating("from", args.from);
  check.floating("to", args.to);
  if (args.from.elements() != args.to.elements()) {
    check.refuse("to", "is ", args.to.shape_text(), ", want as many elements as from ",
                 args.from.shape_text());
  }
  check_data(check, "from", args.from);
  check_data(check, "to", args.to);
}

void validate(const Fill& args) {
  const ArgumentCheck check(Fill::kName);
  const DType dtype = args.values.dtype;
  if (dtype != DType::kI64 && dtype != DType::kI32) check.floating("values", args.values);
  check_data(check, "values", args.values);
}

void validate(const GradientScale& args) {
  const ArgumentCheck check(GradientScale::kName);
  check.view("denominator", args.denominator, DType::kI64, {1});
  check.optional_view("state", args.state, DType::kU8, {int64_t{sizeof(LambState)}});
  check.view("target", args.target, DType::kF32, {1});
  check.optional_view("fp8_scale", args.fp8_scale, DType::kF32, {1});
  if (args.fp8_scale.has_data()) {
    check.view("fp8_inverse_scale", args.fp8_inverse_scale, DType::kF32, {1});
  }
  check.finite("numerator", args.numerator);
}

}  // namespace bertha

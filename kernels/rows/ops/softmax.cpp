#include "kernels/rows/ops/softmax.h"

#include "kernels/base/check.h"

namespace bertha {
namespace {

/// One of the four floating dtypes, at least a column, and data.
void check_x(const ArgumentCheck& check, const char* field, const View& x) {
  if (x.rank < 1) check.refuse(field, "is ", x.shape_text(), ", want 1 to 4 axes");
  check.floating(field, x);
  check.at_least("C", x.extent(x.rank - 1), 1);
  check.same(field, x, x.dtype, x);
}

/// Without data, or each axis x's or 1.
void check_broadcast(const ArgumentCheck& check, const char* field, const View& operand,
                     DType dtype, const View& x) {
  if (operand.data == nullptr) return;
  bool fits = operand.dtype == dtype && operand.rank == x.rank;
  for (int axis = 0; fits && axis < x.rank; ++axis) {
    fits = operand.extent(axis) == 1 || operand.extent(axis) == x.extent(axis);
  }
  if (fits) return;
  check.refuse(field, "is ", operand.shape_text(), ", want ", name(dtype), " with the axes of x ",
               x.shape_text(), " or 1 for each");
}

void check_dropout(const ArgumentCheck& check, const auto& args, const View& x) {
  check.finite("scale", args.scale);
  check.dropout(args.dropout);
  if (args.dropout.probability == 0.0f) return;
  if (args.kind != SoftmaxKind::kSoftmax) {
    check.refuse("dropout.probability", "= ", args.dropout.probability,
                 ", want 0 for log softmax: its zeros would be certainties");
  }
  const int64_t columns = x.extent(x.rank - 1);
  check.view("kept_mask", args.kept_mask, DType::kU8,
             {x.elements() / columns, softmax_mask_columns(columns) / 8});
}

}  // namespace

void validate(const SoftmaxFwd& args) {
  const ArgumentCheck check(SoftmaxFwd::kName);
  check_x(check, "x", args.x);
  check.same("y", args.y, args.x.dtype, args.x);
  check_broadcast(check, "bias", args.bias, args.x.dtype, args.x);
  check_broadcast(check, "mask", args.mask, DType::kU8, args.x);
  check_dropout(check, args, args.x);
  if (args.dropout.probability == 0.0f) return;
  check.same("dropped", args.dropped, args.x.dtype, args.x);
  if (args.dropped.data == args.y.data && args.y.elements() > 0) {
    check.refuse("dropped", "is y's memory, want two buffers: backward needs both");
  }
}

void validate(const SoftmaxBwd& args) {
  const ArgumentCheck check(SoftmaxBwd::kName);
  check_x(check, "dy", args.dy);
  check.same("y", args.y, args.dy.dtype, args.dy);
  check.same("dx", args.dx, args.dy.dtype, args.dy);
  check_dropout(check, args, args.dy);
}

}  // namespace bertha

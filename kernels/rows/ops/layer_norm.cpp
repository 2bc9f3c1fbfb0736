#include "kernels/rows/ops/layer_norm.h"

#include <algorithm>

#include "kernels/base/check_norm.h"

namespace bertha {
namespace {

void check_statistics(const ArgumentCheck& check, const auto& args, const RowsShape& shape) {
  const DType statistic = shape.io == DType::kF64 ? DType::kF64 : DType::kF32;
  check.views({{"mean", args.mean}, {"rstd", args.rstd}}, statistic, {shape.rows});
}

DType dtype_of(DType io, std::initializer_list<const View*> parameters) {
  const bool is_16_bits = io == DType::kF16 || io == DType::kBF16;
  const auto is_f32 = [](const View* view) {
    return view->has_data() && view->dtype == DType::kF32;
  };
  return is_16_bits && std::ranges::any_of(parameters, is_f32) ? DType::kF32 : io;
}

}  // namespace

DType parameter_dtype(const LayerNormFwd& args) {
  return dtype_of(args.x.dtype, {&args.gamma, &args.beta});
}

DType parameter_dtype(const LayerNormBwd& args) {
  return dtype_of(args.dy.dtype, {&args.gamma, &args.dgamma, &args.dbeta});
}

void validate(const LayerNormFwd& args) {
  const ArgumentCheck check(LayerNormFwd::kName);
  const RowsShape shape = check_rows(check, "x", args.x);
  check.view("y", args.y, shape.io, {shape.rows, shape.columns});
  if (args.mean.has_data() || args.rstd.has_data()) check_statistics(check, args, shape);
  const DType parameter = parameter_dtype(args);
  check.optional_view("gamma", args.gamma, parameter, {shape.columns});
  check.optional_view("beta", args.beta, parameter, {shape.columns});
  check.finite("epsilon", args.epsilon);
  if (args.epsilon < 0) check.refuse("epsilon", "= ", args.epsilon, ", want 0 or more");
  if (!args.residual.has_data()) return;
  check.views({{"residual", args.residual}, {"sum", args.sum}}, shape.io,
              {shape.rows, shape.columns});
  if (args.sum.data == args.y.data) {
    check.refuse("sum", "is y's memory, want two buffers: backward needs the sum");
  }
}

void validate(const LayerNormBwd& args) {
  const ArgumentCheck check(LayerNormBwd::kName);
  const RowsShape shape = check_rows(check, "dy", args.dy);
  check.views({{"x", args.x}, {"dx", args.dx}}, shape.io, {shape.rows, shape.columns});
  check_statistics(check, args, shape);
  const DType parameter = parameter_dtype(args);
  check.optional_view("gamma", args.gamma, parameter, {shape.columns});
  check.optional_view("dgamma", args.dgamma, parameter, {shape.columns});
  check.optional_view("dbeta", args.dbeta, parameter, {shape.columns});
}

}  // namespace bertha

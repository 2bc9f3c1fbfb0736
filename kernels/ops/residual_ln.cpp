#include "kernels/ops/residual_ln.h"

#include "kernels/base/check_norm.h"

namespace bertha {

void validate(const ResidualLnFwd& args) {
  const ArgumentCheck check(ResidualLnFwd::kName);
  const RowsShape shape = check_hidden_rows(check, "x", args.x);
  check.view("bias", args.bias, shape.io, {shape.columns});
  check.views({{"residual", args.residual}, {"sum", args.sum}, {"y", args.y}}, shape.io,
              {shape.rows, shape.columns});
  check_norm(check, args, shape);
  check.optional_view("dropout_rows", args.dropout_rows, DType::kI32, {shape.rows});
  check_fp8_result(check, "y_fp8", args.y_fp8, shape.rows, shape.columns);
  if (const ResidualNorm& norm = args.residual_norm; norm.mean.data != nullptr) {
    check.views({{"residual_norm.mean", norm.mean}, {"residual_norm.rstd", norm.rstd}}, DType::kF32,
                {shape.rows});
    check.views({{"residual_norm.gamma", norm.gamma}, {"residual_norm.beta", norm.beta}}, shape.io,
                {shape.columns});
  }
  if (!args.is_y_needed && args.y_fp8.q.data == nullptr) {
    check.refuse("is_y_needed", "is false without data in y_fp8, want one result");
  }
}

void validate(const ResidualLnBwd& args) {
  const ArgumentCheck check(ResidualLnBwd::kName);
  const RowsShape shape = check_hidden_rows(check, "dy", args.dy);
  check.views({{"sum", args.sum}, {"dresidual", args.dresidual}, {"dx", args.dx}}, shape.io,
              {shape.rows, shape.columns});
  check_norm_backward(check, args, shape);
  check.view("dbias", args.dbias, shape.io, {shape.columns});
  check_fp8_result(check, "dx_fp8", args.dx_fp8, shape.rows, shape.columns);
  if (args.dx.data != nullptr && args.dx.data == args.dresidual.data) {
    check.refuse("dx", "shares memory with dresidual, want two buffers");
  }
}

}  // namespace bertha

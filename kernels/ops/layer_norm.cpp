#include "kernels/ops/layer_norm.h"

#include "kernels/ops/check_norm.h"

namespace bertha {

void validate(const LayerNormFwd& args) {
  const ArgumentCheck check("layer_norm_fwd");
  const RowsShape shape = check_rows(check, "x", args.x);
  check.view("y", args.y, shape.io, {shape.rows, shape.columns});
  check_norm(check, args, shape);
}

void validate(const LayerNormBwd& args) {
  const ArgumentCheck check("layer_norm_bwd");
  const RowsShape shape = check_rows(check, "dy", args.dy);
  check.view("x", args.x, shape.io, {shape.rows, shape.columns});
  check.view("dx", args.dx, shape.io, {shape.rows, shape.columns});
  check_norm_backward(check, args, shape);
}

}  // namespace bertha

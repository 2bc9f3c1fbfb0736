#include "kernels/ops/gather_scatter.h"

#include "kernels/base/check.h"

namespace bertha {

void validate(const GatherRows& args) {
  const ArgumentCheck check(GatherRows::kName);
  const RowsShape source = check.matrix("source", args.source);
  check.rank("picked", args.picked, 2);
  const int64_t picked = args.picked.extent(0);
  check.view("indices", args.indices, DType::kI32, {picked});
  check.view("picked", args.picked, source.io, {picked, source.columns});
}

void validate(const ScatterAddRows& args) {
  const ArgumentCheck check(ScatterAddRows::kName);
  const RowsShape rows = check.matrix("rows", args.rows);
  check.rank("target", args.target, 2);
  check.view("indices", args.indices, DType::kI32, {rows.rows});
  check.view("target", args.target, rows.io, {args.target.extent(0), rows.columns});
}

}  // namespace bertha

#include "kernels/ops/gather_scatter.h"

#include "kernels/base/check.h"

namespace bertha {

void validate(const GatherRows& args) {
  const ArgumentCheck check(GatherRows::kName);
  check.rank("source", args.source, 2);
  check.rank("picked", args.picked, 2);
  check.io("source", args.source);
  const int64_t columns = args.source.extent(1);
  const int64_t picked = args.picked.extent(0);
  check.view("source", args.source, args.source.dtype, {args.source.extent(0), columns});
  check.view("indices", args.indices, DType::kI32, {picked});
  check.view("picked", args.picked, args.source.dtype, {picked, columns});
}

void validate(const ScatterAddRows& args) {
  const ArgumentCheck check(ScatterAddRows::kName);
  check.rank("rows", args.rows, 2);
  check.rank("target", args.target, 2);
  check.io("rows", args.rows);
  const int64_t rows = args.rows.extent(0);
  const int64_t columns = args.rows.extent(1);
  check.view("rows", args.rows, args.rows.dtype, {rows, columns});
  check.view("indices", args.indices, DType::kI32, {rows});
  check.view("target", args.target, args.rows.dtype, {args.target.extent(0), columns});
}

}  // namespace bertha

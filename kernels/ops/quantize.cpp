#include "kernels/ops/quantize.h"

#include "kernels/ops/check.h"

namespace bertha {
namespace {

void check_output(const ArgumentCheck& check, const char* field, const View& view, int64_t rows,
                  int64_t columns) {
  if (!view.has_data()) return;
  if (!is_fp8(view.dtype)) {
    check.refuse(field, "is ", name(view.dtype), ", want e4m3 or e5m2");
  }
  check.view(field, view, view.dtype, {rows, columns});
}

}  // namespace

void validate(const Quantize& args) {
  const ArgumentCheck check(Quantize::kName);
  check.io("x", args.x);
  check.rank("x", args.x, 2);
  const int64_t rows = args.x.extent(0);
  const int64_t columns = args.x.extent(1);
  check.view("x", args.x, args.x.dtype, {rows, columns});
  check_output(check, "q", args.q, rows, columns);
  check_output(check, "transposed", args.transposed, columns, rows);
  if (args.q.has_data() && args.transposed.has_data() && args.q.dtype != args.transposed.dtype) {
    check.refuse("transposed", "is ", name(args.transposed.dtype), ", want q's ",
                 name(args.q.dtype));
  }
  if (args.q.has_data() || args.transposed.has_data()) {
    check.view("saturated", args.saturated, DType::kI64, {1});
    check.view("scale", args.scale, DType::kF32, {1});
  }
  check.view("amax", args.amax, DType::kF32, {1});
  check.at_least("live_rows", args.live_rows, 0);
  check.at_most("live_rows", args.live_rows, rows);
}

void validate(const UpdateScales& args) {
  const ArgumentCheck check(UpdateScales::kName);
  check.rank("amax", args.amax, 1);
  const int64_t matrices = args.amax.extent(0);
  check.view("amax", args.amax, DType::kF32, {matrices});
  check.view("scale", args.scale, DType::kF32, {matrices});
  check.view("inverse_scale", args.inverse_scale, DType::kF32, {matrices});
  check.optional_view("sum_of_squares", args.sum_of_squares, DType::kF64, {1});
  if (!is_fp8(args.format)) check.refuse("format", "is ", name(args.format), ", want e4m3 or e5m2");
}

}  // namespace bertha

#include "kernels/ops/quantize.h"

#include "kernels/base/check.h"

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

void check_transposition(const ArgumentCheck& check, const Quantize& args) {
  check.view("transposed", args.transposed, args.x.dtype, {args.x.extent(1), args.x.extent(0)});
  for (const View* given :
       {&args.scale, &args.q, &args.amax, &args.saturated, &args.derivative, &args.column_sums}) {
    if (given->has_data()) check.refuse("x", "is fp8: want transposed and nothing else");
  }
}

}  // namespace

Quantize quantize_to(const Fp8Result& result, const View& x) {
  return {.x = x.reshaped({result.q.extent(0), result.q.extent(1)}),
          .scale = result.scale,
          .q = result.q,
          .transposed = View(),
          .amax = result.amax,
          .saturated = result.saturated,
          .live_rows = result.live_rows};
}

void check_fp8_result(const ArgumentCheck& check, const char* field, const Fp8Result& result,
                      int64_t rows, int64_t columns) {
  if (!result.q.has_data()) return;
  check_output(check, field, result.q, rows, columns);
  check.views({{field, result.scale}, {field, result.amax}}, DType::kF32, {1});
  check.view(field, result.saturated, DType::kI64, {1});
  check.optional_view(field, result.live_rows, DType::kI32, {1});
}

void validate(const Quantize& args) {
  const ArgumentCheck check(Quantize::kName);
  check.rank("x", args.x, 2);
  if (is_fp8(args.x.dtype)) return check_transposition(check, args);
  const auto [io, rows, columns] = check.matrix("x", args.x);
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
  const bool gelu = keeps_pre_activation(args.activation);
  if (!gelu && args.activation != Activation::kNone) {
    check.refuse("activation", "is not a GELU, want a GELU or none");
  }
  if (gelu && args.column_sums.has_data()) {
    check.refuse("column_sums", "is ", args.column_sums.shape_text(),
                 " but the input is not a gradient, want no data");
  }
  check.optional_view("derivative", args.derivative, DType::kU8, {rows, columns});
  check.optional_view("column_sums", args.column_sums, io, {columns});
  check.optional_view("live_rows", args.live_rows, DType::kI32, {1});
}

void validate(const QuantizeWeights& args) {
  const ArgumentCheck check(QuantizeWeights::kName);
  const auto format = [](const Quantize& weight) {
    return weight.q.has_data() ? weight.q.dtype : weight.transposed.dtype;
  };
  for (const Quantize& weight : args.weights) {
    const Quantize& first = args.weights.front();
    validate(weight);
    if (!is_fp8(format(weight)) || weight.activation != Activation::kNone) {
      check.refuse("weights", "contains one without output or with an activation");
    }
    if (weight.x.dtype != first.x.dtype || format(weight) != format(first)) {
      check.refuse("weights", "contains one of ", name(weight.x.dtype), " to ",
                   name(format(weight)), " and one of ", name(first.x.dtype), " to ",
                   name(format(first)), ", want one conversion");
    }
  }
}

void validate(const UpdateScales& args) {
  const ArgumentCheck check(UpdateScales::kName);
  check.rank("amax", args.amax, 1);
  const int64_t matrices = args.amax.extent(0);
  check.views({{"amax", args.amax}, {"scale", args.scale}}, DType::kF32, {matrices});
  check.view("inverse_scale", args.inverse_scale, DType::kF32, {matrices, kInverseScaleCopies});
  check.optional_view("sum_of_squares", args.sum_of_squares, DType::kF64, {1});
  if (!is_fp8(args.format)) check.refuse("format", "is ", name(args.format), ", want e4m3 or e5m2");
}

}  // namespace bertha

#include "kernels/ops/linear.h"

#include "kernels/base/check.h"

namespace bertha {
namespace {

void check_saved(const ArgumentCheck& check, const View& saved, Activation activation, DType io,
                 std::initializer_list<int64_t> extents) {
  if (activation != Activation::kNone) {
    check.view("saved", saved, io, extents);
  } else if (saved.data != nullptr) {
    check.refuse("saved", "is ", saved.shape_text(), " without an activation, want no data");
  }
}

/// A matrix of a GEMM and the inverse of its scale.
struct Operand {
  const char* field;
  const View& matrix;
  const char* scale_field;
  const View& inverse_scale;
};

/// Checks ranks and the rules of fp8, and returns io: with fp8 the dtype of `out`, else of `a`.
DType check_operands(const ArgumentCheck& check, const Operand& a, const Operand& b,
                     const char* out_field, const View& out) {
  check.rank(a.field, a.matrix, 2);
  check.rank(b.field, b.matrix, 2);
  if (!is_fp8(a.matrix.dtype)) {
    check.io(a.field, a.matrix);
    for (const Operand* operand : {&a, &b}) {
      if (operand->inverse_scale.data == nullptr) continue;
      check.refuse(operand->scale_field, "is given for a matrix of ", name(a.matrix.dtype),
                   ", want no data");
    }
    return a.matrix.dtype;
  }
  check.io(out_field, out);
  check.view(a.scale_field, a.inverse_scale, DType::kF32, {1});
  if (!is_fp8(b.matrix.dtype)) {
    check.refuse(b.field, "is ", name(b.matrix.dtype), " but ", a.field, " is ",
                 name(a.matrix.dtype), ", want e4m3 or e5m2");
  }
  check.view(b.scale_field, b.inverse_scale, DType::kF32, {1});
  if (a.matrix.dtype == DType::kE5M2 && b.matrix.dtype == DType::kE5M2) {
    check.refuse(b.field, "is e5m2 and ", a.field,
                 " is too, want e4m3: tensor cores do not multiply two e5m2 matrices");
  }
  return out.dtype;
}

}  // namespace

void validate(const LinearFwd& args) {
  const ArgumentCheck check(LinearFwd::kName);
  const DType io = check_operands(
      check, {"x", args.x, "x_inverse_scale", args.x_inverse_scale},
      {"weight", args.weight, "weight_inverse_scale", args.weight_inverse_scale}, "y", args.y);
  const bool fp8 = is_fp8(args.x.dtype);
  const int64_t rows = args.x.extent(0);
  const int64_t inputs = args.x.extent(1);
  const int64_t outputs = args.weight.extent(0);
  check.at_least("K", inputs, 1);
  check.at_least("N", outputs, 1);
  check.view("x", args.x, args.x.dtype, {rows, inputs});
  check.view("weight", args.weight, fp8 ? args.weight.dtype : io, {outputs, inputs});
  check.optional_view("bias", args.bias, io, {outputs});
  check.view("y", args.y, io, {rows, outputs});
  const bool is_gelu = keeps_pre_activation(args.activation);
  const bool has_derivative = args.derivative.data != nullptr;
  if (is_gelu && !has_derivative) {
    check.view("pre_activation", args.pre_activation, io, {rows, outputs});
  } else if (args.pre_activation.data != nullptr) {
    check.refuse("pre_activation", "is ", args.pre_activation.shape_text(),
                 is_gelu ? " with derivative" : " without a GELU", ", want no data");
  }
  if (has_derivative && !is_gelu) {
    check.refuse("derivative", "is ", args.derivative.shape_text(),
                 " without a GELU, want no data");
  }
  check.optional_view("derivative", args.derivative, DType::kU8, {rows, outputs});
}

void validate(const LinearBwdData& args) {
  const ArgumentCheck check(LinearBwdData::kName);
  const DType io = check_operands(
      check, {"dy", args.dy, "dy_inverse_scale", args.dy_inverse_scale},
      {"weight", args.weight, "weight_inverse_scale", args.weight_inverse_scale}, "dx", args.dx);
  const bool fp8 = is_fp8(args.dy.dtype);
  const int64_t rows = args.dy.extent(0);
  const int64_t outputs = args.dy.extent(1);
  const int64_t inputs = args.weight.extent(fp8 ? 0 : 1);
  check.at_least("K", inputs, 1);
  check.at_least("N", outputs, 1);
  check.view("dy", args.dy, args.dy.dtype, {rows, outputs});
  check.view("weight", args.weight, fp8 ? args.weight.dtype : io,
             {fp8 ? inputs : outputs, fp8 ? outputs : inputs});
  check.view("dx", args.dx, io, {rows, inputs});
  check.optional_view("dbias_below", args.dbias_below, io, {inputs});
  check_saved(check, args.saved, args.activation, io, {rows, inputs});
  check.optional_view("derivative", args.derivative, DType::kU8, {rows, inputs});
  const bool has_derivative = args.derivative.data != nullptr;
  if (has_derivative && args.activation != Activation::kNone) {
    check.refuse("derivative", "is ", args.derivative.shape_text(),
                 " with an activation, want no data");
  }
  if (args.accumulate == Accumulate::kYes &&
      (has_derivative || args.activation != Activation::kNone)) {
    check.refuse("accumulate", "is yes with ", has_derivative ? "a derivative" : "an activation",
                 ", want no: only a plain product supports it");
  }
}

void validate(const LinearBwdWeight& args) {
  const ArgumentCheck check(LinearBwdWeight::kName);
  const DType io = check_operands(check, {"dy", args.dy, "dy_inverse_scale", args.dy_inverse_scale},
                                  {"x", args.x, "x_inverse_scale", args.x_inverse_scale}, "dweight",
                                  args.dweight);
  const bool fp8 = is_fp8(args.dy.dtype);
  const int64_t rows = args.dy.extent(fp8 ? 1 : 0);
  const int64_t outputs = args.dy.extent(fp8 ? 0 : 1);
  const int64_t inputs = args.x.extent(fp8 ? 0 : 1);
  check.at_least("K", inputs, 1);
  check.at_least("N", outputs, 1);
  if (fp8 && args.dbias.data != nullptr) {
    check.refuse("dbias", "is ", args.dbias.shape_text(), " with fp8, want no data");
  }
  check.view("dy", args.dy, args.dy.dtype, {fp8 ? outputs : rows, fp8 ? rows : outputs});
  check.view("x", args.x, fp8 ? args.x.dtype : io, {fp8 ? inputs : rows, fp8 ? rows : inputs});
  check.view("dweight", args.dweight, io, {outputs, inputs});
  check.optional_view("dbias", args.dbias, io, {outputs});
}

void validate(const ActivationBwd& args) {
  const ArgumentCheck check(ActivationBwd::kName);
  const RowsShape dy = check.matrix("dy", args.dy);
  check.views({{"saved", args.saved}, {"dx", args.dx}}, dy.io, {dy.rows, dy.columns});
  if (args.activation == Activation::kNone) {
    check.refuse("activation", "is none, want gelu or tanh");
  }
}

}  // namespace bertha

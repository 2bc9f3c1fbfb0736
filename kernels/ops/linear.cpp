#include "kernels/ops/linear.h"

#include "kernels/ops/check.h"

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

}  // namespace

void validate(const LinearFwd& args) {
  const ArgumentCheck check(LinearFwd::kName);
  check.rank("x", args.x, 2);
  check.rank("weight", args.weight, 2);
  check.io("x", args.x);
  const DType io = args.x.dtype;
  const int64_t rows = args.x.extent(0);
  const int64_t inputs = args.x.extent(1);
  const int64_t outputs = args.weight.extent(0);
  check.at_least("K", inputs, 1);
  check.at_least("N", outputs, 1);
  check.view("x", args.x, io, {rows, inputs});
  check.view("weight", args.weight, io, {outputs, inputs});
  check.optional_view("bias", args.bias, io, {outputs});
  check.view("y", args.y, io, {rows, outputs});
  if (keeps_pre_activation(args.activation)) {
    check.view("pre_activation", args.pre_activation, io, {rows, outputs});
  } else if (args.pre_activation.data != nullptr) {
    check.refuse("pre_activation", "is ", args.pre_activation.shape_text(),
                 " without a GELU, want no data");
  }
}

void validate(const LinearBwdData& args) {
  const ArgumentCheck check(LinearBwdData::kName);
  check.rank("dy", args.dy, 2);
  check.rank("weight", args.weight, 2);
  check.io("dy", args.dy);
  const DType io = args.dy.dtype;
  const int64_t rows = args.dy.extent(0);
  const int64_t outputs = args.dy.extent(1);
  const int64_t inputs = args.weight.extent(1);
  check.at_least("K", inputs, 1);
  check.at_least("N", outputs, 1);
  check.view("dy", args.dy, io, {rows, outputs});
  check.view("weight", args.weight, io, {outputs, inputs});
  check.view("dx", args.dx, io, {rows, inputs});
  check.optional_view("dbias_below", args.dbias_below, io, {inputs});
  check_saved(check, args.saved, args.activation, io, {rows, inputs});
  if (args.activation != Activation::kNone && args.accumulate == Accumulate::kYes) {
    check.refuse("accumulate", "is yes with an activation, want no: it adds only with kNone");
  }
}

void validate(const LinearBwdWeight& args) {
  const ArgumentCheck check(LinearBwdWeight::kName);
  check.rank("dy", args.dy, 2);
  check.rank("x", args.x, 2);
  check.io("dy", args.dy);
  const DType io = args.dy.dtype;
  const int64_t rows = args.dy.extent(0);
  const int64_t outputs = args.dy.extent(1);
  const int64_t inputs = args.x.extent(1);
  check.at_least("K", inputs, 1);
  check.at_least("N", outputs, 1);
  check.view("dy", args.dy, io, {rows, outputs});
  check.view("x", args.x, io, {rows, inputs});
  check.view("dweight", args.dweight, io, {outputs, inputs});
  check.optional_view("dbias", args.dbias, io, {outputs});
}

void validate(const ActivationBwd& args) {
  const ArgumentCheck check(ActivationBwd::kName);
  check.rank("dy", args.dy, 2);
  check.io("dy", args.dy);
  const DType io = args.dy.dtype;
  const int64_t rows = args.dy.extent(0);
  const int64_t columns = args.dy.extent(1);
  check.view("dy", args.dy, io, {rows, columns});
  check.view("dx", args.dx, io, {rows, columns});
  if (args.activation == Activation::kNone) {
    check.refuse("activation", "is none, want gelu or tanh");
  }
  check.view("saved", args.saved, io, {rows, columns});
}

}  // namespace bertha

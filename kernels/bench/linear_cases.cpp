#include <cmath>

#include "kernels/bench/case_parts.h"
#include "kernels/ops/linear.h"
#include "kernels/ops/quantize.h"

namespace bertha {
namespace {

/// A linear layer of the model, and what its three GEMMs fuse, as in harness/model/layer.cpp and
/// heads.cpp.
struct Layer {
  const char* name;
  int64_t rows;     // T
  int64_t checked;  // rows that the reference computes
  int64_t inputs;   // K
  int64_t outputs;  // N
  bool bias;        // in the forward GEMM
  Activation activation = Activation::kNone;
  Activation below = Activation::kNone;  // whose derivative the data gradient fuses; GELU: in bytes
  Accumulate adds_dx = Accumulate::kNo;
  bool bias_gradient = true;  // by the weight gradient
  bool bias_below = false;    // the data gradient includes the bias of the layer below
  bool stores_bytes = false;  // forward stores the derivative of a GELU instead of its input

  Rows inputs_of_rows() const { return {rows, checked, inputs}; }
  Rows outputs_of_rows() const { return {rows, checked, outputs}; }
  Rows weights() const { return {outputs, outputs, inputs}; }
};

std::vector<Layer> layers_of(const BenchModel& m, const BenchBatch& batch) {
  const Part part = checked_part(batch);
  const int64_t t = batch.rows();
  const int64_t p = batch.masked_rows();
  return {
      {"QKV", t, part.tokens, m.hidden, 3 * m.hidden, true, Activation::kNone, Activation::kNone,
       kAdd, false},
      {"projection", t, part.tokens, m.hidden, m.hidden, false, Activation::kNone,
       Activation::kNone, Accumulate::kNo, false},
      {"FF in", t, part.tokens, m.hidden, m.feed_forward, true, Activation::kGeluTanh,
       Activation::kNone, kAdd, false, false, true},
      {"FF out", t, part.tokens, m.feed_forward, m.hidden, false, Activation::kNone,
       Activation::kGeluTanh, Accumulate::kNo, false, true},
      {"MLM transform", p, part.masked, m.hidden, m.hidden, true, Activation::kGeluTanh},
      {"MLM decoder", p, part.masked, m.hidden, m.vocab_rows, true},
      {"pooler", batch.seqs(), part.seqs, m.hidden, m.hidden, true, Activation::kTanh},
      {"NSP", batch.seqs(), part.seqs, m.hidden, 2, true, Activation::kNone, Activation::kTanh}};
}

std::string shape_text(const Layer& layer, const std::string& epilogue) {
  return concat(layer.name, " ", layer.rows, "x", layer.outputs, "x", layer.inputs, epilogue);
}

double flops_of(const Layer& layer) {
  return 2.0 * static_cast<double>(layer.rows) * static_cast<double>(layer.inputs) *
         static_cast<double>(layer.outputs);
}

const char* with(Activation activation) {
  if (activation == Activation::kGeluTanh) return ", gelu";
  return activation == Activation::kTanh ? ", tanh" : "";
}

/// Random bytes, which are u8 from as_bytes() on: random values do not have that dtype.
BenchTensor derivatives(const Rows& rows, double scale, double passes) {
  BenchTensor tensor = rows.matrix("derivative", scale, passes);
  tensor.io = false;
  tensor.dtype = DType::kE4M3;
  return tensor;
}

View as_bytes(View derivative) {
  derivative.dtype = DType::kU8;
  return derivative;
}

OpCase linear_fwd(const Layer& l) {
  const double spread = 1 / std::sqrt(static_cast<double>(l.inputs));
  const bool gelu = l.activation == Activation::kGeluTanh;
  const auto run = [l, gelu](const OpCall& c) {
    c.ops.run(LinearFwd{.x = c["x"],
                        .weight = c["weight"],
                        .bias = l.bias ? c["bias"] : View(),
                        .y = c["y"],
                        .pre_activation = gelu && !l.stores_bytes ? c["pre_activation"] : View(),
                        .derivative = l.stores_bytes ? as_bytes(c["derivative"]) : View(),
                        .activation = l.activation});
  };
  const Rows out = l.outputs_of_rows();
  OpCase op{
      .operation = "linear_fwd",
      .shape = shape_text(l, concat(l.bias ? ", bias" : "", with(l.activation))),
      .tensors = {l.inputs_of_rows().matrix("x", 2, 1), l.weights().matrix("weight", 2 * spread, 1),
                  out.vector("bias", 1), as_result(out.matrix("y", 0, 1), l.inputs)},
      .call = run,
      .flops = flops_of(l)};
  if (l.stores_bytes) {
    op.tensors.push_back(derivatives(out, 0, 1));  // not compared: they differ by up to two
  } else if (gelu) {
    op.tensors.push_back(as_result(out.matrix("pre_activation", 0, 1), l.inputs));
  }
  return op;
}

OpCase linear_bwd_data(const Layer& l) {
  const bool bytes = keeps_pre_activation(l.below);
  const bool saved = l.below == Activation::kTanh;
  const double spread = 1 / std::sqrt(static_cast<double>(l.outputs));
  const auto run = [l, saved, bytes](const OpCall& c) {
    c.ops.run(LinearBwdData{.dy = c["dy"],
                            .weight = c["weight"],
                            .saved = saved ? c["saved"] : View(),
                            .dx = c["dx"],
                            .derivative = bytes ? as_bytes(c["derivative"]) : View(),
                            .dbias_below = l.bias_below ? c["dbias_below"] : View(),
                            .activation = bytes ? Activation::kNone : l.below,
                            .accumulate = l.adds_dx,
                            .accumulate_dbias = kAdd});
  };
  const Rows in = l.inputs_of_rows();
  BenchTensor dy = l.outputs_of_rows().matrix("dy", 1, 1);
  dy.is_empty_beyond = l.bias_below;
  const Rows none{1, 1, l.inputs};
  BenchTensor dbias = in.row_sum("dbias_below");
  dbias.is_result = l.bias_below;
  dbias.passes = l.bias_below ? 2 : 0;
  return {.operation = "linear_bwd_data",
          .shape = shape_text(l, concat(with(l.below), l.bias_below ? ", bias below" : "",
                                        l.adds_dx == kAdd ? ", adds" : "")),
          .tensors = {dy, l.weights().matrix("weight", spread, 1),
                      as_result(in.matrix("dx", 1, 1), l.outputs),
                      (saved ? in : none).matrix("saved", 1, saved ? 1 : 0),
                      derivatives(bytes ? in : none, 4, bytes ? 1 : 0), dbias},
          .call = run,
          .flops = flops_of(l)};
}

OpCase linear_bwd_weight(const Layer& l) {
  const auto run = [l](const OpCall& c) {
    c.ops.run(LinearBwdWeight{.dy = c["dy"],
                              .x = c["x"],
                              .dweight = c["dweight"],
                              .dbias = l.bias_gradient ? c["dbias"] : View(),
                              .accumulate = kAdd});
  };
  BenchTensor dy = l.outputs_of_rows().matrix("dy", 0.1, 1);
  dy.is_empty_beyond = true;
  BenchTensor dbias = l.outputs_of_rows().row_sum("dbias");
  dbias.passes = 2;
  return {.operation = "linear_bwd_weight",
          .shape = shape_text(l, l.bias_gradient ? ", adds, bias" : ", adds"),
          .tensors = {dy, l.inputs_of_rows().matrix("x", 1, 1),
                      as_result(l.weights().matrix("dweight", 1, 2), l.checked), dbias},
          .call = run,
          .flops = flops_of(l)};
}

}  // namespace

void add_linear(const BenchModel& model, const BenchBatch& batch, std::vector<OpCase>& cases) {
  const std::vector<Layer> layers = layers_of(model, batch);
  for (const Layer& layer : layers) cases.push_back(linear_fwd(layer));
  for (const Layer& layer : layers) cases.push_back(linear_bwd_data(layer));
  for (const Layer& layer : layers) cases.push_back(linear_bwd_weight(layer));
}

void add_quantize(const Rows& rows, std::vector<OpCase>& cases) {
  BenchTensor x = rows.matrix("x", 2, 1);
  x.is_empty_beyond = true;
  const auto output = [&](const char* name, int64_t outer, int64_t inner) {
    return BenchTensor{
        .name = name, .extents = {outer, inner}, .io = false, .dtype = DType::kE4M3, .passes = 1};
  };
  BenchTensor q = output("q", rows.rows, rows.columns);
  q.checked = {rows.checked, rows.columns};
  q.is_result = true;
  BenchTensor transposed = output("transposed", rows.columns, rows.rows);
  transposed.is_absent_in_reference = true;
  cases.push_back(
      {.operation = "quantize",
       .shape = concat(rows.text(), ", e4m3 and transposed"),
       .tensors = {x, given<float>("scale", {128}), q, transposed, scalar_sum("amax", DType::kF32),
                   scalar_sum("saturated", DType::kI64)},
       .call = [](const OpCall& c) {
         c.ops.run(Quantize{.x = c["x"],
                            .scale = c["scale"],
                            .q = c["q"],
                            .transposed = c["transposed"],
                            .amax = c["amax"],
                            .saturated = c["saturated"]});
       }});
}

}  // namespace bertha

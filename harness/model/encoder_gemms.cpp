#include "harness/model/encoder_gemms.h"

#include <utility>

#include "kernels/ops/linear_quantize.h"

namespace bertha {
namespace {

constexpr size_t index(EncoderGemm gemm) { return static_cast<size_t>(gemm); }

Fp8Scales at(const Fp8Scales& scales, size_t i) { return scales.rows(static_cast<int64_t>(i), 1); }

/// One scale of each row, whose numbers are equal, for the GEMMs.
View one_of(const View& inverse_scale) { return {inverse_scale.data, DType::kF32, {1}}; }

/// A view of the first bytes of scratch memory as an fp8 matrix.
View matrix_in(const View& bytes, DType format, int64_t rows, int64_t columns) {
  return {bytes.data, format, {rows, columns}};
}

/// Quantize of `x`, or of its rounded rows if they exist.
Quantize quantize_of(const View& x, const Fp8Result& rounded = {}) {
  return {.x = rounded.q.has_data() ? rounded.q : x,
          .scale = View(),
          .q = View(),
          .transposed = View(),
          .amax = View(),
          .saturated = View()};
}

}  // namespace

Quantize EncoderGemms::record(Quantize from, const Fp8Scales& scales) const {
  const bool records = mode_ != GemmMode::kFp8Eval;
  from.scale = scales.scale;
  from.amax = records ? scales.amax : fp8_->unused_amax;
  from.saturated = records ? fp8_->saturated : fp8_->unused_count;
  from.live_rows = fp8_->live_tokens;
  return from;
}

void EncoderGemms::record_weight(EncoderGemm gemm, const View& weight) const {
  Quantize quantize = quantize_of(weight);
  quantize.amax = at(fp8_->weight_scales, index(gemm)).amax;
  ops_.run(quantize);
}

void EncoderGemms::run(const std::optional<Quantize>& quantize) const {
  if (quantize) ops_.run(*quantize);
}

Fp8Result EncoderGemms::input_result(EncoderGemm gemm) const {
  if (mode_ == GemmMode::kIo || mode_ == GemmMode::kRecord) return {};
  const View& transposed = fp8_->inputs_transposed[index(gemm)];
  const Quantize recorded = record(quantize_of(View()), at(fp8_->input_scales, index(gemm)));
  return {
      .q = matrix_in(rows_of_input(gemm), DType::kE4M3, transposed.extent(1), transposed.extent(0)),
      .scale = recorded.scale,
      .amax = recorded.amax,
      .saturated = recorded.saturated,
      .live_rows = recorded.live_rows};
}

void EncoderGemms::forward(EncoderGemm gemm, const LinearFwd& args,
                           const Fp8Result& rounded) const {
  const Forward forward = forward_of(gemm, args, quantize_of(args.x, rounded));
  run(forward.x);
  ops_.run(forward.y);
}

EncoderGemms::Forward EncoderGemms::forward_of(EncoderGemm gemm, const LinearFwd& args,
                                               Quantize x) const {
  const size_t i = index(gemm);
  if (mode_ == GemmMode::kRecord) record_weight(gemm, args.weight);
  if (mode_ == GemmMode::kIo) return {.x = {}, .y = args};

  const Fp8Scales scales = at(fp8_->input_scales, i);
  const bool is_rounded = is_fp8(x.x.dtype);
  if (!is_rounded) x = record(x, scales);
  LinearFwd y = args;
  if (mode_ != GemmMode::kRecord) {
    y.x = matrix_in(rows_of_input(gemm), DType::kE4M3, x.x.extent(0), x.x.extent(1));
    if (!is_rounded) x.q = y.x;
    y.x_inverse_scale = one_of(scales.inverse_scale);
    y.weight = fp8_->weights[i].q;
    y.weight_inverse_scale = one_of(at(fp8_->weight_scales, i).inverse_scale);
  }
  const bool transposes = mode_ == GemmMode::kFp8;
  if (transposes) x.transposed = fp8_->inputs_transposed[i];
  if (is_rounded && !transposes) return {.x = {}, .y = y};
  return {.x = x, .y = y};
}

View EncoderGemms::rows_of_input(EncoderGemm gemm) const {
  return gemm == EncoderGemm::kFfOut ? fp8_->inner_rows : fp8_->rows;
}

View EncoderGemms::rows_of_gradient(EncoderGemm gemm) const {
  return gemm == EncoderGemm::kFfIn ? fp8_->inner_rows : fp8_->rows;
}

Fp8Result EncoderGemms::gradient_result(EncoderGemm gemm) const {
  if (mode_ != GemmMode::kFp8) return {};
  const size_t i = index(gemm);
  const Fp8Scales scales = at(fp8_->gradient_scales, i);
  return {.q = matrix_in(rows_of_gradient(gemm), DType::kE5M2, fp8_->inputs_transposed[i].extent(1),
                         fp8_->weights[i].q.extent(0)),
          .scale = scales.scale,
          .amax = scales.amax,
          .saturated = fp8_->saturated,
          .live_rows = fp8_->live_tokens};
}

void EncoderGemms::backward(EncoderGemm gemm, const LinearBwdWeight& weight,
                            const LinearBwdData& data, const Fp8Result& rounded) const {
  const Backward backward = backward_of(gemm, weight, data, quantize_of(data.dy, rounded));
  run(backward.dy);
  ops_.run(backward.dweight);
  ops_.run(backward.dx);
}

EncoderGemms::Backward EncoderGemms::backward_of(EncoderGemm gemm, const LinearBwdWeight& weight,
                                                 const LinearBwdData& data, Quantize dy) const {
  const size_t i = index(gemm);
  Backward backward{.dy = {}, .dweight = weight, .dx = data};
  if (mode_ == GemmMode::kIo) return backward;

  const Fp8Scales scales = at(fp8_->gradient_scales, i);
  const int64_t tokens = dy.x.extent(0);
  const int64_t outputs = dy.x.extent(1);
  const bool is_rounded = is_fp8(dy.x.dtype);
  if (!is_rounded) dy = record(dy, scales);
  if (mode_ == GemmMode::kFp8) {
    LinearBwdData& dx = backward.dx;
    dx.dy = matrix_in(rows_of_gradient(gemm), DType::kE5M2, tokens, outputs);
    if (!is_rounded) dy.q = dx.dy;
    dx.dy_inverse_scale = one_of(scales.inverse_scale);
    dx.weight = fp8_->weights[i].transposed;
    dx.weight_inverse_scale = one_of(at(fp8_->weight_scales, i).inverse_scale);
    LinearBwdWeight& dweight = backward.dweight;
    if (weight.dbias.has_data()) {
      dy.column_sums = std::exchange(dweight.dbias, View());
      dy.accumulate_sums = weight.accumulate;
    }
    dy.transposed = matrix_in(fp8_->gradient_transposed, DType::kE5M2, outputs, tokens);
    dweight.dy = dy.transposed;
    dweight.dy_inverse_scale = one_of(scales.inverse_scale);
    dweight.x = fp8_->inputs_transposed[i];
    dweight.x_inverse_scale = one_of(at(fp8_->input_scales, i).inverse_scale);
  }
  backward.dy = dy;
  return backward;
}

void EncoderGemms::feed_forward(const LinearFwd& in, const LinearFwd& out, const Fp8Result& rounded,
                                const View& before_gelu) const {
  if (mode_ == GemmMode::kIo || mode_ == GemmMode::kRecord) {
    forward(EncoderGemm::kFfIn, in);
    return forward(EncoderGemm::kFfOut, out);
  }
  LinearFwd product = in;
  product.y = before_gelu;
  product.derivative = View();
  product.activation = Activation::kNone;
  Quantize gelu = quantize_of(before_gelu);
  gelu.activation = in.activation;
  if (mode_ == GemmMode::kFp8) gelu.derivative = in.derivative;
  const Forward first = forward_of(EncoderGemm::kFfIn, product, quantize_of(in.x, rounded));
  const Forward second = forward_of(EncoderGemm::kFfOut, out, gelu);
  run(first.x);
  ops_.run(LinearFwdQuantize{.linear = first.y, .quantize = *second.x});
  ops_.run(second.y);
}

void EncoderGemms::feed_forward_backward(const LinearBwdWeight& out_weight,
                                         const LinearBwdData& out_data,
                                         const LinearBwdWeight& in_weight,
                                         const LinearBwdData& in_data,
                                         const Fp8Result& rounded) const {
  if (mode_ != GemmMode::kFp8) {
    backward(EncoderGemm::kFfOut, out_weight, out_data, rounded);
    return backward(EncoderGemm::kFfIn, in_weight, in_data);
  }
  LinearBwdData of_gelu = out_data;
  of_gelu.derivative = View();
  of_gelu.dbias_below = View();
  Quantize before_gelu = quantize_of(in_data.dy);
  before_gelu.derivative = out_data.derivative;
  before_gelu.column_sums = out_data.dbias_below;
  before_gelu.accumulate_sums = out_data.accumulate_dbias;
  const Backward out =
      backward_of(EncoderGemm::kFfOut, out_weight, of_gelu, quantize_of(out_data.dy, rounded));
  const Backward in = backward_of(EncoderGemm::kFfIn, in_weight, in_data, before_gelu);
  run(out.dy);
  ops_.run(out.dweight);
  ops_.run(LinearBwdDataQuantize{.linear = out.dx, .quantize = *in.dy});
  ops_.run(in.dweight);
  ops_.run(in.dx);
}

void add_weight_copies(const Fp8Layer& fp8, std::span<const View> weights,
                       std::vector<Quantize>& all) {
  for (size_t i = 0; i < weights.size(); ++i) {
    const Fp8Scales scales = at(fp8.weight_scales, i);
    all.push_back({.x = weights[i],
                   .scale = scales.scale,
                   .q = fp8.weights[i].q,
                   .transposed = fp8.weights[i].transposed,
                   .amax = scales.amax,
                   .saturated = fp8.unused_count});
  }
}

}  // namespace bertha

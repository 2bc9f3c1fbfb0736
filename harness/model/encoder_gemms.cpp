#include "harness/model/encoder_gemms.h"

namespace bertha {
namespace {

constexpr size_t index(EncoderGemm gemm) { return static_cast<size_t>(gemm); }

Fp8Scales at(const Fp8Scales& scales, size_t i) { return scales.rows(static_cast<int64_t>(i), 1); }

/// The first bytes of scratch memory as an fp8 matrix.
View matrix_in(const View& bytes, DType format, int64_t rows, int64_t columns) {
  return {bytes.data, format, {rows, columns}};
}

bool is_wanted(const Fp8Passes& passes) {
  return passes.forward || passes.data_gradient || passes.weight_gradient;
}

}  // namespace

std::string describe_fp8_passes() {
  std::string text;
  for (const Fp8Passes& passes : kFp8Passes) {
    if (!is_wanted(passes)) continue;
    std::string list;
    if (passes.forward) list += " forward";
    if (passes.data_gradient) list += list.empty() ? " dgrad" : "+dgrad";
    if (passes.weight_gradient) list += list.empty() ? " wgrad" : "+wgrad";
    text += concat(text.empty() ? "" : ", ", passes.name, list);
  }
  return text;
}

Quantize EncoderGemms::record(const View& x, const Fp8Scales& scales) const {
  const bool records = mode_ != GemmMode::kFp8Eval;
  return {.x = x,
          .scale = scales.scale,
          .q = View(),
          .transposed = View(),
          .amax = records ? scales.amax : fp8_->unused_amax,
          .saturated = records ? fp8_->saturated : fp8_->unused_count,
          .live_rows = fp8_->live_tokens};
}

void EncoderGemms::forward(EncoderGemm gemm, const LinearFwd& args) const {
  const size_t i = index(gemm);
  const Fp8Passes& passes = kFp8Passes[i];
  const bool rounds = passes.forward || (passes.weight_gradient && mode_ != GemmMode::kFp8Eval);
  if (mode_ == GemmMode::kIo || !rounds) return ops_.run(args);

  const Fp8Scales scales = at(fp8_->input_scales, i);
  Quantize quantize = record(args.x, scales);
  LinearFwd y = args;
  if (mode_ != GemmMode::kRecord && passes.forward) {
    quantize.q = matrix_in(fp8_->input, DType::kE4M3, args.x.extent(0), args.x.extent(1));
    y.x = quantize.q;
    y.x_inverse_scale = scales.inverse_scale;
    y.weight = fp8_->weights[i].q;
    y.weight_inverse_scale = at(fp8_->weight_scales, i).inverse_scale;
  }
  if (mode_ == GemmMode::kFp8 && passes.weight_gradient) {
    quantize.transposed = fp8_->inputs_transposed[i];
  }
  ops_.run(quantize);
  ops_.run(y);
}

void EncoderGemms::backward(EncoderGemm gemm, const LinearBwdWeight& weight,
                            const LinearBwdData& data) const {
  const size_t i = index(gemm);
  const Fp8Passes& passes = kFp8Passes[i];
  LinearBwdWeight dweight = weight;
  LinearBwdData dx = data;
  if (mode_ != GemmMode::kIo && (passes.data_gradient || passes.weight_gradient)) {
    const Fp8Scales scales = at(fp8_->gradient_scales, i);
    const int64_t tokens = data.dy.extent(0);
    const int64_t outputs = data.dy.extent(1);
    Quantize quantize = record(data.dy, scales);
    if (mode_ == GemmMode::kFp8 && passes.data_gradient) {
      quantize.q = matrix_in(fp8_->gradient, DType::kE5M2, tokens, outputs);
      dx.dy = quantize.q;
      dx.dy_inverse_scale = scales.inverse_scale;
      dx.weight = fp8_->weights[i].transposed;
      dx.weight_inverse_scale = at(fp8_->weight_scales, i).inverse_scale;
    }
    if (mode_ == GemmMode::kFp8 && passes.weight_gradient) {
      quantize.transposed = matrix_in(fp8_->gradient_transposed, DType::kE5M2, outputs, tokens);
      dweight.dy = quantize.transposed;
      dweight.dy_inverse_scale = scales.inverse_scale;
      dweight.x = fp8_->inputs_transposed[i];
      dweight.x_inverse_scale = at(fp8_->input_scales, i).inverse_scale;
    }
    ops_.run(quantize);
  }
  ops_.run(dweight);
  ops_.run(dx);
}

void quantize_weights(Ops& ops, const Fp8Layer& fp8,
                      const std::array<View, kEncoderGemms>& weights) {
  const auto run = [&](size_t i, const Fp8Weight& copies, const View& amax) {
    if (!is_wanted(kFp8Passes[i])) return;
    ops.run(Quantize{.x = weights[i],
                     .scale = at(fp8.weight_scales, i).scale,
                     .q = copies.q,
                     .transposed = copies.transposed,
                     .amax = amax,
                     .saturated = fp8.unused_count,
                     .live_rows = weights[i].extent(0)});
  };
  for (size_t i = 0; i < kEncoderGemms; ++i) run(i, {}, at(fp8.weight_scales, i).amax);
  ops.run(UpdateScales{.amax = fp8.weight_scales.amax,
                       .scale = fp8.weight_scales.scale,
                       .inverse_scale = fp8.weight_scales.inverse_scale,
                       .sum_of_squares = View(),
                       .format = DType::kE4M3});
  for (size_t i = 0; i < kEncoderGemms; ++i) run(i, fp8.weights[i], fp8.unused_amax);
}

}  // namespace bertha

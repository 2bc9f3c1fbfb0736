#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace bertha::tolerance {

// The only place for tolerances of tests, each with its derivation.
// Half a unit in the last place: f32 2^-24 = 6.0e-8, f64 2^-53 = 1.1e-16.
inline constexpr double kRoundF32 = 5.9604644775390625e-8;
inline constexpr double kRoundF64 = 1.1102230246251565e-16;

/// Relative to a sum of positive terms: each addition rounds once, and a block adds up at most 2^16
/// terms in a row when the compiler uses a single lane.
inline constexpr double kSumF64 = 65536 * kRoundF64;

/// A LAMB run of up to ten steps in f32 against double, relative to max(1, |value|). An update
/// takes ten roundings; those of m and v add up over 1 / (1 - beta) steps, and the trust ratio and
/// the weights pass them on to the next step.
inline constexpr double kLambF32 = 64 * kRoundF32;

/// The same run on a GPU against the CPU: each is that far from the formulas at most.
inline constexpr double kLambDevice = 2 * kLambF32;

/// Inner products of length k in f32, relative to the sum of |a| |b|: each of k additions rounds
/// once; independent roundings grow as the root of k (Higham and Mary 2019), with a factor for the
/// largest of some hundred thousand elements.
inline double product_f32(int64_t k) {
  return 6.0 * (std::sqrt(static_cast<double>(k)) + 1.0) * kRoundF32;
}

/// A sum of products of fp8 on a GPU, relative to the sum of |a| |b|. Tensor cores add 32 products
/// at a time and cut all of them, and the sum so far, 13 bits below the largest (DeepSeek-V3
/// technical report, 2024, 3.3.2). With signs at random a sum of k products stays below some 6
/// sqrt(k) of them, and k cuts add up as sqrt(k) / sqrt(3) of one: 3.5 * 2^-13 for any k, and twice
/// that for the largest of many. Sums that pass into f32 on the way are closer.
inline constexpr double kFp8Sum = 8.0 / 8192;

/// Elementwise chains of at most a dozen f32 roundings whose sums are kept in f64 (LayerNorm,
/// dropout, residual, softmax rows), relative to the largest magnitude that enters the chain.
inline constexpr double kRowF32 = 16 * kRoundF32;

/// Gradient of LayerNorm, relative to the largest element: three terms that may cancel by a
/// factor of ten, each with the roundings of a chain.
inline constexpr double kRowGradientF32 = 10 * kRowF32;

// --- devices: computed in f32, stored in a narrower type -------------------------------------------
// `rounding` is half a unit in the last place of the stored type.

/// A chain of kRowF32 (sums of a row are f32 trees of at most some ten levels), stored once.
inline double device_row(double rounding) { return rounding + kRowF32; }

/// A gradient of LayerNorm as kRowGradientF32, stored once.
inline double device_row_gradient(double rounding) { return rounding + kRowGradientF32; }

/// Mean and rstd of a row on a device, in `unit`s of what they are computed in: some 16 roundings.
/// In f64 the reference, which sums 256 columns in eight lanes and then halves of a row, rounds as
/// much: at random, columns / 8 times, and once for every halving.
inline double device_row_statistics(double unit, bool reference_rounds, int64_t columns) {
  if (!reference_rounds) return 16 * unit;
  const double straight = std::min(static_cast<double>(columns), 256.0);
  const double halvings = std::log2(static_cast<double>(columns) / straight);
  return (16 + std::sqrt(straight / 8) + halvings) * unit;
}

/// A sum of `count` terms in f32, each with the error of a gradient's chain, stored once; relative
/// to the sum of the terms' magnitudes.
inline double device_sum(double rounding, int64_t count) {
  return rounding + kRowGradientF32 + product_f32(count);
}

/// A column of `rows` numbers of the stored type, as they are, summed in f32 and stored with
/// `rounding`. Tensor cores cut what they add where others round: a unit of f32 instead of half a
/// one, and always towards 0.
inline double stored_column_sum(double rounding, double sum, double magnitude, int64_t rows) {
  return rounding * std::abs(sum) + 2 * product_f32(rows) * magnitude;
}

/// A softmax row on a device: the hardware's 2^x is within 2 units (CUDA programming guide), its
/// argument (at most some thirty here) times log2(e) rounds once more: 45 units; then the f32 tree
/// of the sum and a quotient.
inline constexpr double kDeviceSoftmax = 64 * kRoundF32;

/// A softmax row on a device in `unit`s of what it is computed in, stored once with `rounding`,
/// relative to the largest value or 1: kDeviceSoftmax's chain, and a sum over the row that rounds
/// at random, which the logarithm passes on.
inline double device_softmax(double rounding, double unit, int64_t columns) {
  return rounding + (64 + 6.0 * std::sqrt(static_cast<double>(columns))) * unit;
}

/// exp_f32: the polynomial's error and four roundings, relative.
inline constexpr double kExpF32 = 4 * kRoundF32;

/// gelu and its derivative, relative to max(1, |z|): the exponent 2u is at most 2 |z| where the
/// result is not yet its limit, so its rounding weighs |2u| units; then exp, sum, quotient,
/// product.
inline constexpr double kGeluF32 = 16 * kRoundF32;

/// Attention relative to the largest element: inner products over at most 128 head elements and
/// some hundred keys, through exp (whose argument is at most about ten).
inline constexpr double kAttentionF32 = 128 * kRoundF32;

/// Attention in a dtype with rounding u, out and dV relative to the largest element: a probability
/// is rounded once, the result once, each at most u of the largest; twice that for the largest of
/// the sums; then f32.
inline constexpr double attention_out(double u) { return 4 * u + kAttentionF32; }

/// dQ and dK relative to the largest term of dS (times an input) or element: dS is rounded once and
/// the result once; delta comes from an out of rounding u, which the inner product with dO over D
/// elements multiplies by no more than the gradients of the probabilities have grown by themselves.
/// Terms add up with signs at random to a few of the largest.
inline constexpr double attention_dscore(double u) { return 8 * u + 2 * kAttentionF32; }

/// Fourth-order differences with step h = 2^-6, relative to 1 + the root sum of squares of the
/// loss terms: rounding 16 u * 1.5 / h = 1.5e3 u in the outputs, truncation h^4 f5 / 30 = 2e-9 f5
/// per moved element with f5 up to some thousand for products of six moved elements.
inline constexpr double kFiniteDifference = 4096 * kRoundF32;

/// A two-layer model in f32 with values of order one, against f64. Some 300 roundings lie between
/// input and loss; a gradient passes twice as many, relative to the largest terms of its sums.
inline constexpr double kModelLossF32 = 300 * kRoundF32;
inline constexpr double kModelGradientF32 = 600 * kRoundF32;

/// Central difference of a loss near 5 with step h against its derivative: the noise of two losses
/// over 2 h, and the third derivative, which stays below 200 for these models.
inline constexpr double central_difference(double h) {
  return 5 * kModelLossF32 / h + 200.0 / 6.0 * h * h;
}

// --- device dtypes: `unit` is half a unit in the last place of the dtype, rounding(dtype) of
// device_tensor.h; the reference is f32 or better and gets the same rounded inputs ---

/// gelu and its derivative on the GPU, relative to |z| or to the factor: the library's tanh is a
/// machine instruction whose relative error is 2^-11, where tanh is at most 1 and enters halved
/// (measured 5e-6 beside the tanh form). f32 has none of it: there the pass is ours.
inline constexpr double kGeluInstruction = 1.0 / 4096;
/// Both in f16, relative to max(1, |z|) and absolute: over all numbers of f16, with each operation
/// rounded to nearest and tanh off by its 2^-10.987 (PTX ISA) either way, the largest errors of
/// both forms are 0.00101 (at 2.2) and 0.0047 (at 3.7).
inline constexpr double kGeluF16 = 0.00105;
inline constexpr double kGeluDerivativeF16 = 0.0052;
/// What kernels compute with the tanh instruction for the exact form, and its derivative, in f64:
/// the fit of gelu_form.h is off by 3.44e-5 (at 0.6) and 1.14e-4 (at 0.96).
inline constexpr double kGeluFit = 3.63e-5;
inline constexpr double kGeluFitDerivative = 1.2e-4;
/// Largest derivative of gelu: the factor from an error of z to that of gelu(z).
inline constexpr double kGeluDerivative = 1.13;

// fp8: rounding to e4m3 is 2^-4 of a value at most and 2.65 % rms, to e5m2 2^-3 and 5.3 %. A
// gradient of the model has gone through two layers of four GEMMs each way, whose errors add up as
// squares where they are independent: 16 roundings of e4m3 and 8 of e5m2 give
// sqrt(16 * 0.0265^2 + 8 * 0.053^2) = 18 % of the norm, a cosine of 0.984. Twice that error, a
// cosine of 0.94, is allowed; the decoder's three roundings more are within it.
// A wrong scale, layout or operand gives a cosine near zero.
constexpr double kFp8GradientCosine = 0.94;
constexpr double kFp8GradientNorm = 0.18;
// The loss moves by the error of the logits, 10 % of values of a standard deviation near 1, times
// their gradient, over some masked tokens.
constexpr double kFp8ModelLoss = 0.02;
// The decoder alone, compared with a decoder in io after the same encoder: 2 roundings of e4m3 and
// 1 of e5m2 give 6.5 % of the norm. Twice that error is a cosine of 0.9917. Of the loss, as above,
// with logits that are 3.7 % off.
constexpr double kFp8DecoderCosine = 0.9917;
constexpr double kFp8DecoderNorm = 0.065;
constexpr double kFp8DecoderLoss = 0.0075;

}  // namespace bertha::tolerance

#include "harness/plan/compute_time.h"

#include <algorithm>
#include <array>

namespace bertha {
namespace {

/// A whole training step on one H200, LAMB of all weights included.
struct MeasuredStep {
  double tokens;
  double ms;
};

/// BERT-large, dropout 0.1, Wikipedia's lengths, CUDA graphs, `bertha bench step` on one H200
/// (kernels/measured/fp8.md). All other figures of this file are parts of such steps.
using MeasuredSteps = std::array<MeasuredStep, 4>;
constexpr MeasuredSteps kMeasured16BitSteps{
    {{1024, 9.1}, {2048, 12.0}, {4096, 18.9}, {24576, 89.2}}};
constexpr MeasuredSteps kMeasuredFp8Steps{{{1024, 9.2}, {2048, 11.4}, {4096, 15.8}, {24576, 65.0}}};

// What the measured steps trained.
constexpr double kLargeLayers = 24;
constexpr double kLargeHidden = 1024;
constexpr double kLargeParameters = 336'232'258;
constexpr double kLargeLayerWeights = 12 * kLargeHidden * kLargeHidden;
constexpr double kSquaredPerToken = 98'826.0 / 255.83;
constexpr double kMaskedPerToken = 3686.0 / 24576;
constexpr Dims kLarge{.L = 24, .H = 1024, .A = 16, .D = 64, .F = 4096, .C = 30522, .V = 30528};

// Parts of the step of 24,576 tokens (kernels/measured/operations.md).
constexpr double kAttentionFlopsPerSecond = 214e12;  // of useful GEMMs, forward and backward
constexpr double kHeadFlopsPerSecond = 550e12;       // of its GEMMs, cross-entropy included
constexpr double kLayerNormMsPerElement = 5.5 / (kLargeLayers * 24576 * kLargeHidden);

constexpr double kLambBytesPerElement = 40;  // moments and apply, 16-bit gradients and weights

double layer_weights(const Dims& dims) {
  return static_cast<double>(4 * dims.H * dims.H + 2 * dims.H * dims.F);
}

/// What grows evenly with the work: attention, LayerNorm and the masked-token head.
double even_ms(const Dims& dims, const MeanMicroBatch& batch) {
  const auto layers = static_cast<double>(dims.L);
  const auto hidden = static_cast<double>(dims.H);
  const double attention = 3 * layers * 4 * hidden * batch.squared_tokens;
  const double head = 3 * batch.masked * 2 * hidden * (hidden + static_cast<double>(dims.V));
  return 1e3 * attention / kAttentionFlopsPerSecond + 1e3 * head / kHeadFlopsPerSecond +
         layers * batch.tokens * hidden * kLayerNormMsPerElement;
}

/// GEMMs of BERT-large's layers, launches and latencies of all kernels, of a measured step.
double uneven_ms(const MeasuredStep& step) {
  const MeanMicroBatch batch{.tokens = step.tokens,
                             .squared_tokens = step.tokens * kSquaredPerToken,
                             .masked = step.tokens * kMaskedPerToken};
  return step.ms - lamb_ms(kLargeParameters) - even_ms(kLarge, batch);
}

double interpolated_uneven_ms(const MeasuredSteps& steps, double tokens) {
  const auto* above = std::ranges::lower_bound(steps, tokens, {}, &MeasuredStep::tokens);
  above = std::clamp(above, steps.begin() + 1, steps.end() - 1);
  const MeasuredStep& low = *(above - 1);
  const double slope = (uneven_ms(*above) - uneven_ms(low)) / (above->tokens - low.tokens);
  return uneven_ms(low) + slope * (tokens - low.tokens);
}

}  // namespace

double pass_ms(const Dims& dims, const MeanMicroBatch& batch, GemmPrecision precision) {
  // Tokens for which a layer of BERT-large has GEMMs of as many FLOPs.
  const double tokens = batch.tokens * layer_weights(dims) / kLargeLayerWeights;
  const bool is_fp8 = precision == GemmPrecision::kFp8;
  const double layers = static_cast<double>(dims.L) / kLargeLayers;
  return even_ms(dims, batch) +
         layers * interpolated_uneven_ms(is_fp8 ? kMeasuredFp8Steps : kMeasured16BitSteps, tokens);
}

bool is_bound_by_latency(const Dims& dims, const MeanMicroBatch& batch, GemmPrecision precision) {
  constexpr double kTimesLarger = 16;
  const MeanMicroBatch larger{.tokens = kTimesLarger * batch.tokens,
                              .squared_tokens = kTimesLarger * batch.squared_tokens,
                              .masked = kTimesLarger * batch.masked};
  return kTimesLarger * pass_ms(dims, batch, precision) > 1.2 * pass_ms(dims, larger, precision);
}

double lamb_ms(double elements) {
  return 1e3 * elements * kLambBytesPerElement / kMemoryBytesPerSecond;
}

}  // namespace bertha

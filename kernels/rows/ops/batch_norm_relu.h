#pragma once

#include "kernels/base/arguments.h"

namespace bertha {

/// What a batch normalisation normalises by: training takes the batch's own statistics, inference
/// the running ones.
enum class NormStatistics : uint8_t { kBatch, kRunning };

/// y = max(0, (x - mean[c]) * rstd[c] * gamma[c] + beta[c] + addend), channel by channel.
///
/// Letters   N, C, S as in prelu.h: channels first [N, C, H * W], channels last [N * H * W, C, 1].
///           M = N * S elements of a channel.
/// Dtypes    io is one of f32, f16, bf16 and the same for every io view; parameters and statistics
///           f32, as in mixed-precision training. The CPU takes f32 alone.
/// Writes    overwrites y, mask, mean, rstd. With kBatch, running += momentum * (batch - running)
///           for both running statistics, unless they have no data; with kRunning they are read.
/// Masks     bit i % 8 of byte i / 8 is 1 exactly where element i of the stored y is not zero (NaN
///           counts); bits after the last element are 0. Without data no mask is saved.
/// Exact     deterministic; statistics in one pass around a value of the channel, merged in f64
///           (CPU: two passes in f64). The variance that normalises is biased, sum / M, the one
///           that runs is not, sum / (M - 1). M == 1 has variance 0, so y = max(0, beta + addend),
///           and leaves the running variance as it is; M == 0 is a no-op.
///           NaN goes through the maximum to y. With kBatch an infinity or NaN makes its channel's
///           y NaN and its statistics not finite.
/// Needs     any extents, zero included; 16-byte accesses where addresses allow them.
/// Source    Ioffe, Szegedy 2015, algorithm 1; conventions of torch.nn.BatchNorm2d and torch.relu.
struct BatchNormReluFwd {
  static constexpr const char* kName = "batch_norm_relu_fwd";
  View x;             // io  [N, C, S]
  View addend;        // io  [N, C, S]  or no data: nothing is added
  View gamma;         // f32 [C]
  View beta;          // f32 [C]
  View running_mean;  // f32 [C]  in and out
  View running_var;   // f32 [C]  in and out
  View y;             // io  [N, C, S]  out
  View mask;          // u8  [ceil(N * C * S / 8)]  out: y is not zero
  View mean;          // f32 [C]  out, saved for backward
  View rstd;          // f32 [C]  out, 1 / sqrt(biased variance + epsilon)
  NormStatistics statistics = NormStatistics::kBatch;
  float momentum = 0.1f;  // in [0, 1]: weight of the new batch
  float epsilon = 1e-5f;
};

/// Gradients of BatchNormReluFwd, from its bits instead of y: with g = dy at ones of the mask and 0
/// at zeros whatever dy is there, and n = (x - mean) * rstd,
///   daddend = g, dbeta = sum g, dgamma = sum g n,
///   dx = gamma * rstd * (g - dbeta / M - n * dgamma / M) with kBatch, gamma * rstd * g with
///   kRunning.
///
/// Writes    overwrites dx and daddend, one of which may be dy's memory; dgamma and dbeta as
///           `accumulate` says. M == 0 still writes dgamma and dbeta.
/// Exact     deterministic; sums in two levels of fixed order, in f32 (CPU: f64).
struct BatchNormReluBwd {
  static constexpr const char* kName = "batch_norm_relu_bwd";
  View dy;       // io  [N, C, S]
  View x;        // io  [N, C, S]
  View mask;     // u8  [ceil(N * C * S / 8)]
  View mean;     // f32 [C]
  View rstd;     // f32 [C]
  View gamma;    // f32 [C]
  View dx;       // io  [N, C, S]  out
  View daddend;  // io  [N, C, S]  out; optional
  View dgamma;   // f32 [C]        out
  View dbeta;    // f32 [C]        out
  NormStatistics statistics = NormStatistics::kBatch;
  Accumulate accumulate = Accumulate::kNo;
};

void validate(const BatchNormReluFwd& args);
void validate(const BatchNormReluBwd& args);

}  // namespace bertha

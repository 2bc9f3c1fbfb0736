#pragma once

#include "harness/model/dims.h"

namespace bertha {

/// Which GEMMs the encoder has.
enum class GemmPrecision : uint8_t { k16Bit, kFp8 };

/// What a rank's micro-batch works on. Means over steps, therefore fractions.
struct MeanMicroBatch {
  double tokens = 0;
  double squared_tokens = 0;  // sum of t * t over sequences of t tokens
  double masked = 0;
};

/// Milliseconds of forward and backward of one micro-batch on one H200 at its power limit, with
/// dropout. BERT-large with Wikipedia's lengths takes what was measured, see kMeasured16BitSteps;
/// between those sizes GEMMs and latencies are interpolated, and beyond them continued on a line.
/// Other models and lengths: attention by its FLOPs, LayerNorm by its rows, the head by its FLOPs,
/// a layer's GEMMs as those of BERT-large that have as many FLOPs. Rises with the tokens.
double pass_ms(const Dims& dims, const MeanMicroBatch& batch, GemmPrecision precision);

/// Part of pass_ms() that forward takes, evaluation as well.
inline constexpr double kForwardShare = 0.33;

/// Whether the micro-batch is so small that latencies of kernels, not GEMMs, decide its time: where
/// a token takes at least 1.2 times as long as in a large one.
bool is_bound_by_latency(const Dims& dims, const MeanMicroBatch& batch, GemmPrecision precision);

/// Milliseconds of the LAMB kernels for so many elements of one rank.
double lamb_ms(double elements);

/// Bytes per second of an H200's memory in elementwise kernels of a step.
inline constexpr double kMemoryBytesPerSecond = 4.1e12;

/// Joules per second of an H200 in a step of BERT-large: its power limit. A smaller micro-batch
/// takes less, which was not measured.
inline constexpr double kWattsAtPowerLimit = 690;

}  // namespace bertha

#pragma once

#include <string>

#include "kernels/base/cuda/kernel_set.h"

namespace bertha {

/// Choices between kernels that compute the same, except for fp8_fast_wgrad; all other defaults are
/// the measured best.
struct CudaOptions {
  /// Gradient of the word table: atomic adds of pairs, or f32 sums over positions sorted by id.
  enum class EmbeddingGradient { kSorted, kAtomic };
  EmbeddingGradient embedding_gradient = EmbeddingGradient::kSorted;
  /// Attention kernels. Grouped: a launch per length bucket, on side streams. Persistent: one
  /// launch over sequences and heads. Split: the same over parts of sequences. attention/choice.h
  /// defines when these apply, and what auto means.
  enum class AttentionVariant { kAuto, kGrouped, kPersistent, kSplit };
  AttentionVariant attention = AttentionVariant::kAuto;
  /// Forward GEMMs with a GELU, and data gradients with its derivative: cuBLASLt's GEMMs and passes
  /// after them, or own kernels. gemm/gelu_choice.h defines when own kernels apply, and what auto
  /// means.
  enum class GeluGemms { kAuto, kOwn, kLibrary };
  GeluGemms gelu_gemms = GeluGemms::kAuto;
  /// File of tuned GEMM algorithms, as tune_gemms writes it; "" = the library's heuristics. A file
  /// of another GPU model or library version, or a truncated one, is ignored with a warning.
  std::string gemm_plans_path = {};
  /// Times the algorithms of every GEMM without a tuned one, at its first use, and saves the choice
  /// to gemm_plans_path. Blocks for about three seconds and allocates memory each time: run one
  /// step of the largest batch before anything is timed or captured.
  bool tune_gemms = false;
  /// SMs that GEMMs plan for while communication occupies the others; 0 = all.
  int gemm_sm_count = 0;
  /// Weight gradients of fp8 are summed in tensor cores alone, which keep 14 bits below the largest
  /// product; otherwise their sums pass into f32 ones every few products.
  bool fp8_fast_wgrad = false;
};

/// `options` resolved for these kernels: for portable ones auto is grouped attention and the
/// library's GEMMs with a GELU. Error(kUsage) if others are requested.
CudaOptions options_for(KernelSet kernels, CudaOptions options);

}  // namespace bertha

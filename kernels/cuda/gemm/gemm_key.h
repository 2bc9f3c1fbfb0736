#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "kernels/base/arguments.h"

namespace bertha {

/// The GEMMs of a linear layer y[T,N] = x[T,K] w[N,K]^T.
enum class GemmKind : uint8_t { kForward, kDataGradient, kWeightGradient };

/// The library's epilogue of a GEMM.
enum class GemmEpilogue : uint8_t { kNone, kBias };

/// Operands that begin at multiples of this have every algorithm of the library to choose from.
inline constexpr int kFullAlignmentBytes = 16;

/// Everything that the choice of an algorithm may depend on.
struct GemmKey {
  GemmKind kind;
  DType dtype;            // of D, auxiliary matrix and bias; sums are f32
  DType a_dtype = dtype;  // weight, or x in a weight gradient; fp8 if b_dtype is
  DType b_dtype = dtype;  // x, or dy in gradients
  GemmEpilogue epilogue = GemmEpilogue::kNone;
  Accumulate accumulate = Accumulate::kNo;
  int64_t rows;     // T
  int64_t inputs;   // K
  int64_t outputs;  // N
  // Bytes, of the least aligned matrix and of the bias, up to the full alignment.
  int matrix_alignment = kFullAlignmentBytes;
  int bias_alignment = kFullAlignmentBytes;
  int sm_count;                 // planned for; 0 = all
  uint8_t fast_accumulate = 0;  // fp8: 1 = sums stay in tensor cores, which keep 14 bits
  auto operator<=>(const GemmKey&) const = default;
};

/// The library's algorithm (cublasLtMatmulAlgo_t): 64 bytes that only the same library understands.
using GemmAlgorithm = std::array<uint64_t, 8>;
using TunedGemms = std::map<GemmKey, GemmAlgorithm>;

}  // namespace bertha

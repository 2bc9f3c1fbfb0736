#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm/gemm_plans.h"

namespace bertha {

// Whether an algorithm computes its GEMM: a sample of elements against sums of our own.

/// Uniform values in [-0.5, 0.5], rounded to the dtype, which may be fp8: zeros, or few distinct
/// values, would run faster than real data.
void fill_with_random(cudaStream_t stream, DType dtype, void* values, int64_t count, uint32_t seed);

/// Sampled elements: some in every tile of the largest outputs.
inline constexpr int kGemmSamples = 32768;

/// A sampled element of A B + bias (+ D), and the error that a correct result may have.
struct GemmSample {
  int64_t element;  // of D
  float want;
  float slack;
};

/// Computes kGemmSamples samples on `stream`; operands.d holds what an accumulating GEMM adds to.
void sample_gemm(cudaStream_t stream, const GemmPlan& plan, const GemmOperands& operands,
                 GemmSample* samples);

/// Adds to *wrong (device memory) the sampled elements of D, and of a stored pre-activation, that
/// are out of bounds.
void count_wrong(cudaStream_t stream, const GemmPlan& plan, const GemmOperands& operands,
                 const GemmSample* samples, int* wrong);

}  // namespace bertha

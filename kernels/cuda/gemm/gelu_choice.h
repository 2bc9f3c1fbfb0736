#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "kernels/cuda/cuda_backend.h"

namespace bertha {

/// What a thread block of an own kernel computes at a time, and from how many of these in turn on
/// each SM on it was measured to be faster than the library.
struct GeluTile {
  int rows;
  int columns;
  int inner_block;  // indices summed over at a time
  int least_rounds;
};

/// Of gemm_bias_gelu.cu.
inline constexpr GeluTile kGemmBiasGeluTile{
    .rows = 128, .columns = 256, .inner_block = 64, .least_rounds = 2};
/// Of gemm_dgelu_dbias.cu, where the last round, in part empty, has to weigh little.
inline constexpr GeluTile kGemmDgeluDbiasTile{
    .rows = 256, .columns = 128, .inner_block = 64, .least_rounds = 4};

/// Tiles above each other in T rows.
int row_tiles(const GeluTile& tile, int64_t rows);

/// Those that work side by side, where each has an SM for every tile of columns.
int tiles_abreast(const GeluTile& tile, int64_t columns, int sm_count);

/// What decides, but for T, which kernel takes a product that ends in a GELU, or a data gradient
/// that ends in the slope of one.
struct GeluCall {
  DType io;
  Activation gelu;
  int64_t columns;  // of the result
  int64_t inner;    // summed over
  int sm_count;
  bool has_bias = true;    // gradient: a bias gradient to sum up
  bool is_aligned = true;  // every view is at a multiple of 16 bytes
};

inline constexpr int64_t kAtNoRows = std::numeric_limits<int64_t>::max();

/// The rule: the own kernel takes a call of so many rows T and more, the library all others. So the
/// same call takes the same kernel in every run, tuned or not. The own kernels serve f16 and bf16,
/// the GELU of tanh, whole tiles of columns and whole inner blocks; the product, a bias too. own
/// takes them at any T; auto where they serve, from the rounds of their tile on, and the gradient
/// only with a bias gradient, which costs the library a pass more.
///
/// Errors    Error(kUsage): own is asked for and cannot serve the call. Who names kernels measures
///           them; auto is there for everybody else.
int64_t own_gemm_bias_gelu_from(CudaOptions::GeluGemms asked, const GeluCall& call);
int64_t own_gemm_dgelu_dbias_from(CudaOptions::GeluGemms asked, const GeluCall& call);

/// SMs that products plan for, on a device of so many.
int planned_sm_count(const CudaOptions& options, int of_device);

/// As gelu_gemms(), on a device of so many SMs.
std::string gelu_gemms_text(const CudaOptions& options, const FeedForward& model, int sm_count);

}  // namespace bertha

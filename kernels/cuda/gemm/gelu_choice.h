#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "kernels/cuda/cuda_options.h"
#include "kernels/ops/linear.h"

namespace bertha {

/// The tile of a block of an own kernel, and from how many waves of tiles on the kernel is faster
/// than the library.
struct GeluTile {
  int rows;
  int columns;
  int inner_block;  // indices summed over at a time
  int min_waves;
};

/// The tiles of gemm_bias_gelu.cu and gemm_dgelu_dbias.cu. One wave is enough: the library needs
/// another pass.
inline constexpr GeluTile kGemmBiasGeluTile{
    .rows = 128, .columns = 256, .inner_block = 64, .min_waves = 1};
inline constexpr GeluTile kGemmDgeluDbiasTile{
    .rows = 256, .columns = 128, .inner_block = 64, .min_waves = 1};

/// The tile of gemm_gelu_fp8.cu, both directions; fewer waves than in BERT-large's 24 were not
/// measured.
inline constexpr GeluTile kGemmGeluFp8Tile{
    .rows = 128, .columns = 256, .inner_block = 128, .min_waves = 2};

/// Tiles that T rows have.
int row_tiles(const GeluTile& tile, int64_t rows);

/// Blocks that share a tile of columns when every SM has one block.
int blocks_per_column_tile(const GeluTile& tile, int64_t columns, int sm_count);

/// What decides, besides T, which kernel runs a GEMM with a GELU that stores its derivative in
/// bytes, or a data gradient that is multiplied by these.
struct GeluCall {
  DType io;
  int64_t columns;  // columns of the result
  int64_t inner;    // summed over
  int sm_count;
  bool has_bias = true;    // forward only
  bool is_aligned = true;  // every view is at a multiple of 16 bytes
};

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

/// The rule: the smallest number of rows T for which a call uses the own kernel; all others use the
/// library. So the same call uses the same kernel in every run, tuned or not. The own kernels
/// support f16 and bf16, both GELUs, whole tiles of columns and whole inner blocks; forward only
/// with a bias. own selects them at any T; auto selects them if supported, from min_waves on.
///
/// Errors    Error(kUsage): own is requested but does not support the call. own does not fall back
///           silently, because a user who names kernels measures them. auto falls back.
int64_t own_gemm_bias_gelu_from(CudaOptions::GeluGemms asked, const GeluCall& call);
int64_t own_gemm_dgelu_dbias_from(CudaOptions::GeluGemms asked, const GeluCall& call);
/// The same for fp8, in both directions; io: what results are rounded to.
int64_t own_gemm_gelu_fp8_from(CudaOptions::GeluGemms asked, const GeluCall& call);

/// SMs that GEMMs plan for, on a device of `of_device` SMs.
int planned_sm_count(const CudaOptions& options, int of_device);

/// The text of gelu_gemms() of cuda_backend.h, on a device of `sm_count` SMs.
std::string gelu_gemms_text(const CudaOptions& options, const FeedForward& model, int sm_count);

}  // namespace bertha

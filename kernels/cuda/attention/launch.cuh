#pragma once

#include <limits>

#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/cuda_check.h"

namespace bertha {

/// Calls work(MmaShape<...>{}) with the specialisation for a group. Plan<kHeadSize, kTiles> holds
/// the constants of MmaShape; kTiles: 64-row tiles of the longest sequence of the bucket, 0: any
/// number.
template <template <int kHeadSize, int kTiles> class Plan, class Params, class Work>
void dispatch_mma(const AttentionLaunch& launch, const Params& params, const Work& work) {
  const auto with_plan = [&](auto type, auto head_size, auto tiles) {
    using T = typename decltype(type)::Type;
    using Chosen = Plan<head_size.value, tiles.value>;
    if (params.dropout.random != nullptr) {
      work(MmaShape<T, head_size.value, Chosen, true>{});
    } else {
      work(MmaShape<T, head_size.value, Chosen, false>{});
    }
  };
  dispatch_16bit(launch.dtype, [&](auto type) {
    using std::integral_constant;
    using AnyTiles = integral_constant<int, 0>;
    switch (params.batch.head_size) {
      case 32:
        return with_plan(type, integral_constant<int, 32>{}, AnyTiles{});
      case 128:
        return with_plan(type, integral_constant<int, 128>{}, AnyTiles{});
      case 64: {
        const integral_constant<int, 64> head_size;
        if (launch.bucket_tokens <= 128) {
          return with_plan(type, head_size, integral_constant<int, 2>{});
        }
        return with_plan(type, head_size, AnyTiles{});
      }
      default:
        fail(ExitCode::kInternal, "head size ", params.batch.head_size, ", want 32, 64 or 128");
    }
  });
}

/// Blocks for rows_per_block rows of each head of each sequence, in a grid of one dimension.
inline unsigned blocks_of_heads(AttentionBatch& batch, int rows_per_block) {
  batch.tiles_per_head = (batch.longest + rows_per_block - 1) / rows_per_block;
  const int64_t blocks = int64_t{batch.tiles_per_head} * batch.heads * batch.seqs;
  BERTHA_CHECK(blocks <= std::numeric_limits<int32_t>::max(), "attention over ", batch.seqs,
               " sequences of up to ", batch.longest, " tokens and ", batch.heads,
               " heads is more than one launch");
  return static_cast<unsigned>(blocks);
}

template <class Shape, class Params>
void launch_mma(void (*kernel)(Params), Shape, int shared_bytes, const AttentionLaunch& launch,
                Params params) {
  allow_shared_bytes(kernel, shared_bytes);
  const unsigned blocks = blocks_of_heads(params.batch, Shape::kRows);
  kernel<<<blocks, Shape::kThreads, static_cast<size_t>(shared_bytes), launch.stream>>>(params);
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha

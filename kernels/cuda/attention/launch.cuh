#pragma once

#include <limits>

#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/cuda/attention/sequence_tiles.h"
#include "kernels/cuda/attention/tile.cuh"

namespace bertha {

/// Calls work(MmaShape<...>{}) with the specialization for a group: the narrowest tiles that have
/// the columns of a head. Plan<kHeadSize, kTiles> has the constants of MmaShape; kTiles: 64-row
/// tiles of the longest sequence of the bucket, 0: any number.
template <template <int kHeadSize, int kTiles> class Plan, class Params, class Work>
void dispatch_mma(const AttentionLaunch& launch, const Params& params, const Work& work) {
  dispatch_16bit(launch.dtype, [&]<class T>(TypeTag<T>) {
    const auto with_plan = [&]<int kHeadSize, int kTiles>() {
      using Chosen = Plan<kHeadSize, kTiles>;
      if (params.dropout.random != nullptr) {
        work(MmaShape<T, kHeadSize, Chosen, true>{});
      } else {
        work(MmaShape<T, kHeadSize, Chosen, false>{});
      }
    };
    const int head_size = params.batch.head_size;
    if (head_size <= 32) return with_plan.template operator()<32, 0>();
    if (head_size > 64) return with_plan.template operator()<128, 0>();
    if (launch.bucket_tokens <= 128) return with_plan.template operator()<64, 2>();
    with_plan.template operator()<64, 0>();
  });
}

/// Blocks for rows_per_block rows of each head of each sequence, in a grid of one dimension.
inline int64_t blocks_of_heads(AttentionBatch& batch, int rows_per_block, bool one_launch) {
  batch.tiles_per_head = one_launch ? 0 : (batch.longest + rows_per_block - 1) / rows_per_block;
  const int64_t tiles = one_launch ? tiles_of_seqs(batch.seqs, batch.tokens, rows_per_block)
                                   : int64_t{batch.tiles_per_head} * batch.seqs;
  const int64_t blocks = tiles * batch.heads;
  BERTHA_CHECK(blocks > 0 && blocks <= std::numeric_limits<int32_t>::max(), "attention over ",
               batch.seqs, " sequences of up to ", batch.longest, " tokens and ", batch.heads,
               " heads has ", blocks, " thread blocks, want 1 to 2^31 - 1 in a launch");
  return blocks;
}

template <class Shape, class Params>
void launch_mma(void (*kernel)(Params), Shape, int shared_bytes, const AttentionLaunch& launch,
                Params params) {
  const int64_t blocks = blocks_of_heads(params.batch, Shape::kRows, launch.one_launch);
  launch_kernel(launch.stream, kernel, {blocks, Shape::kThreads, shared_bytes}, params);
}

}  // namespace bertha

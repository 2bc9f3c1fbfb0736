#pragma once

#include "kernels/cuda/attention/kernels.h"

namespace bertha {

/// One launch over all sequences of a batch, of as many thread blocks as there are SMs.
struct PersistentLaunch {
  cudaStream_t stream;
  DType dtype;
  int sm_count;
  uint32_t* counter;  // of take_item() in work_list.cuh: 0 before and after
  /// Whether an item is a part of a sequence's queries (forward) or keys (backward) instead of all:
  /// few sequences then occupy all SMs.
  bool split = false;
};

/// Forward with wgmma. Serves f16 and bf16, head size 64, sequences of up to 512 tokens, qkv and
/// out at multiples of 16 bytes. Zeroes padding rows too. `params.batch` covers all sequences:
/// first_seq is 0; longest and tiles_per_head are not used. The result does not depend on `split`.
/// Error(kInternal) when there is dropout and its mask has 2^32 words or more.
void launch_persistent_forward(const PersistentLaunch& on, AttentionFwdParams params);

/// Rows of column sums that backward stores for each sequence, and for how many sequences at most
/// they are asked for: they take 24 KiB each with 16 heads. Split: a row for each tile of 64.
inline constexpr int kColumnSumsOfSeq = 2;
inline constexpr int kColumnSumsOfSplitSeq = 8;
inline constexpr int64_t kMostSummedSeqs = 512;

/// Parts of the keys of the longest sequence, 128 keys each, that backward splits it into.
inline constexpr int kMostKeyParts = 4;

/// Backward with wgmma. Serves f16 and bf16, head size 64, sequences of up to 512 tokens, views at
/// multiples of 16 bytes, with dropout the mask of each head too (S a multiple of 128). Zeroes the
/// padding rows of dqkv. `params.batch` as in forward, of at least one sequence; params.delta is
/// not used. params.column_sums, unless null, gets for each sequence rows whose sum are the column
/// sums of its rows of dqkv as they are stored. Split: a second kernel adds the parts of dQ up, in
/// the order of keys, and params.dquery_parts is needed.
void launch_persistent_backward(const PersistentLaunch& on, AttentionBwdParams params);

/// That second kernel: dQ, and of the column sums those of dQ and of tiles that no sequence has.
void launch_sum_query_gradient(const PersistentLaunch& on, const AttentionBwdParams& params);

}  // namespace bertha

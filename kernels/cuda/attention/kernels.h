#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/base/dropout_bits.h"
#include "kernels/base/dtype.h"

namespace bertha {

struct Fp8Sink;

// What run_cuda(AttentionFwd / AttentionBwd) chooses from. Device pointers and plain numbers, so
// that they go to a kernel by value; shapes and units as in kernels/ops/attention.h.

/// The batch and one group of it.
struct AttentionBatch {
  const int32_t* cu_seqlens = nullptr;
  int64_t tokens = 0;  // T
  int heads = 0;       // A
  int head_size = 0;   // D
  int mask_words = 0;  // u32 per row of the mask, S / 32
  int first_seq = 0;   // first sequence of the group
  int seqs = 0;        // in the group
  int longest = 0;     // tokens of its longest sequence
  // Set by the launcher: thread blocks along a sequence; 0: as in sequence_tiles.h.
  int tiles_per_head = 0;
  // For the persistent kernels, set by the launcher:
  int part_bits = 0;      // 2^part_bits items at most for each sequence and head
  int tiles_of_part = 8;  // tiles of 64 rows that an item has at most
};

struct AttentionDropout {
  const uint64_t* random = nullptr;  // {seed, step}; null: no dropout
  uint32_t threshold = 0;
  uint32_t digits[kDropoutDigits] =
      {};  // all ones if the digit of the threshold is 1, highest first
  uint32_t site = 0;
  float keep = 1.0f;  // 1 - probability
};

struct AttentionFwdParams {
  AttentionBatch batch;
  AttentionDropout dropout;
  const void* qkv = nullptr;
  void* out = nullptr;
  float* lse = nullptr;
  uint32_t* mask = nullptr;
  float scale = 0.0f;
};

struct AttentionBwdParams {
  AttentionBatch batch;
  AttentionDropout dropout;
  const void* dout = nullptr;
  const void* qkv = nullptr;
  const void* out = nullptr;
  const float* lse = nullptr;
  const uint32_t* mask = nullptr;
  float* delta = nullptr;  // f32 [A, T], scratch: keep * rowsum(dout * out)
  void* dqkv = nullptr;
  float* column_sums = nullptr;   // persistent kernels: f32 [rows, 3, A, D], see below
  float* dquery_parts = nullptr;  // split kernel: f32 [kMaxKeyParts, T, A, D], scratch
  float scale = 0.0f;
};

/// One group on one stream. `bucket_tokens` picks the specialisation. one_launch: the group is the
/// batch, and its thread blocks depend on T and B alone (mma.sync only).
struct AttentionLaunch {
  cudaStream_t stream;
  DType dtype;
  int64_t bucket_tokens;
  bool one_launch;
};

/// mma.sync: f16 and bf16, head sizes that are multiples of 8, up to kMaxHeadSize.
void launch_mma_forward(const AttentionLaunch& launch, AttentionFwdParams params);
/// Writes dQ, and params.delta for the next.
void launch_mma_query_gradient(const AttentionLaunch& launch, AttentionBwdParams params);
void launch_mma_key_gradient(const AttentionLaunch& launch, AttentionBwdParams params);

/// CUDA cores, any dtype, head sizes up to kMaxHeadSize: simple, not fast.
void launch_plain_forward(const AttentionLaunch& launch, AttentionFwdParams params);
void launch_plain_backward(const AttentionLaunch& launch, AttentionBwdParams params);

/// One launch over all sequences of a batch, of as many thread blocks as there are SMs.
struct PersistentLaunch {
  cudaStream_t stream;
  DType dtype;
  int sm_count;
  uint32_t* counter;  // for take_item() in work_list.cuh: 0 before and after
  /// Whether an item is a part of a sequence's queries (forward) or keys (backward) instead of all:
  /// few sequences then occupy all SMs.
  bool split = false;
};

/// Forward with wgmma. Supports f16 and bf16, head sizes that are multiples of 8, up to 64,
/// sequences of up to 512 tokens, qkv and out at multiples of 16 bytes. Zeroes padding rows too.
/// `params.batch` covers all sequences: first_seq is 0; longest and tiles_per_head are not used.
/// The result does not depend on `split`. Error(kInternal) if there is dropout and its mask has
/// 2^32 words or more.
void launch_persistent_forward(const PersistentLaunch& on, AttentionFwdParams params);

/// Rows of column sums that backward stores for each sequence, and the maximum number of sequences
/// for which they are requested: 24 KiB each with 16 heads. Split: a row for each tile of 64.
inline constexpr int kColumnSumsOfSeq = 2;
inline constexpr int kColumnSumsOfSplitSeq = 8;
inline constexpr int64_t kMaxSummedSeqs = 512;

/// Parts of the keys of the longest sequence, 128 keys each, that backward splits it into.
inline constexpr int kMaxKeyParts = 4;

/// Backward with wgmma. Supports f16 and bf16, head sizes that are multiples of 8, up to 64,
/// sequences of up to 512 tokens, views at multiples of 16 bytes, with dropout the mask of each
/// head too (S a multiple of 128). Zeroes the padding rows of dqkv. `params.batch` as in forward,
/// of at least one sequence; params.delta is not used. params.column_sums, unless null, gets for
/// each sequence rows whose sum are the column sums of its rows of dqkv as they are stored. Split:
/// a second kernel adds the parts of dQ up, in the order of keys, and params.dquery_parts is
/// needed. Not split and with heads of multiples of 16, dqkv_fp8, unless null, gets the result
/// rounded to e5m2 in place of params.dqkv; its q is at a multiple of 16 bytes.
void launch_persistent_backward(const PersistentLaunch& on, AttentionBwdParams params,
                                const Fp8Sink* dqkv_fp8);

/// The second kernel of the split backward: dQ, and the column sums of dQ and of tiles without a
/// sequence.
void launch_sum_query_gradient(const PersistentLaunch& on, const AttentionBwdParams& params);

}  // namespace bertha

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/base/dropout_bits.h"
#include "kernels/base/dtype.h"

namespace bertha {

// What run_cuda(AttentionFwd / AttentionBwd) chooses from. Device pointers and plain numbers, so
// that they go to a kernel by value; shapes and units as in kernels/ops/attention.h.

/// The batch and one group of it.
struct AttentionBatch {
  const int32_t* cu_seqlens = nullptr;
  int64_t tokens = 0;      // T
  int heads = 0;           // A
  int head_size = 0;       // D
  int mask_words = 0;      // u32 per row of the mask, S / 32
  int first_seq = 0;       // of the group
  int seqs = 0;            // in the group
  int longest = 0;         // tokens of its longest sequence
  int tiles_per_head = 0;  // set by the launcher: thread blocks along a sequence
  // Of the persistent kernels, set by the launcher:
  int part_bits = 0;      // 2^part_bits items at most for each sequence and head
  int tiles_of_part = 8;  // tiles of 64 rows that an item has at most
};

struct AttentionDropout {
  const uint64_t* random = nullptr;  // {seed, step}; null: no dropout
  uint32_t threshold = 0;
  uint32_t digits[kDropoutDigits] =
      {};  // all ones where the digit of the threshold is 1, highest first
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
  float* column_sums = nullptr;   // of the persistent kernels: f32 [rows, 3, A, D], persistent.h
  float* dquery_parts = nullptr;  // of the split kernel: f32 [kMostKeyParts, T, A, D], scratch
  float scale = 0.0f;
};

/// One group on one stream. `bucket_tokens` picks the specialisation.
struct AttentionLaunch {
  cudaStream_t stream;
  DType dtype;
  int64_t bucket_tokens;
};

/// Whether the tensor-core kernels (mma.sync) have this dtype and head size.
bool mma_attention_has(DType dtype, int head_size);
void launch_mma_forward(const AttentionLaunch& launch, AttentionFwdParams params);
/// Writes dQ, and params.delta for the next.
void launch_mma_query_gradient(const AttentionLaunch& launch, AttentionBwdParams params);
void launch_mma_key_gradient(const AttentionLaunch& launch, AttentionBwdParams params);

/// CUDA cores, any dtype, head sizes up to kPlainHeadSize: simple, not fast.
inline constexpr int kPlainHeadSize = 128;
void launch_plain_forward(const AttentionLaunch& launch, AttentionFwdParams params);
void launch_plain_backward(const AttentionLaunch& launch, AttentionBwdParams params);

}  // namespace bertha

#pragma once

#include <span>

#include "kernels/base/arguments.h"
#include "kernels/base/sequence_group.h"
#include "kernels/ops/quantize.h"

namespace bertha {

/// Self attention inside each sequence of an un-padded batch:
/// out = dropout(softmax(scale * Q K^T)) V, per sequence and head.
///
/// Letters   T = tokens, B = sequences, A = heads, D = head size; S = max_seq_tokens.
/// Dtypes    io is one of f32, f16, bf16; lse f32; cu_seqlens i32 (sequence b owns the rows
///           [cu_seqlens[b], cu_seqlens[b + 1])).
/// Random    probability of the query in row t on key k (counted from the start of its sequence),
///           head a: element index (t * A + a) * S + k.
/// Writes    overwrites out and lse, and of mask the keys that a row's sequence has; out rows
///           [cu_seqlens[B], T) become zero.
/// Needs     S % 32 == 0; the groups cover all sequences in order; empty sequences are allowed. A
///           sequence with NaN or infinities may spoil its neighbours, and so may rows after the
///           last: they have no influence where they hold numbers up to 2^15.
/// Source    Vaswani et al. 2017, eq. 1; Dao et al. 2022 for the saved log-sum-exp.
struct AttentionFwd {
  static constexpr const char* kName = "attention_fwd";
  View qkv;         // io  [T, 3, A, D]
  View cu_seqlens;  // i32 [B + 1]
  View out;         // io  [T, A, D]  out
  View lse;         // f32 [A, T]     out: natural log-sum-exp of the scaled scores
  View mask;        // u8  [T, A, S / 8]  out: kept probabilities
  std::span<const SequenceGroup> groups;
  Dropout dropout;
  int64_t max_seq_tokens = 512;
  float scale = 0.125f;  // 1 / sqrt(D)
};

/// Gradient of AttentionFwd, and on the way of the bias that was added to qkv.
///
/// Writes    overwrites dqkv; rows [cu_seqlens[B], T) become zero. dbias (+)= column sums of dqkv
///           rounded to io, before any rounding to fp8; without data it is left out.
/// Needs     CUDA, with dqkv_fp8: as Quantize.
struct AttentionBwd {
  static constexpr const char* kName = "attention_bwd";
  View dout;        // io  [T, A, D]
  View qkv;         // io  [T, 3, A, D]
  View out;         // io  [T, A, D]
  View lse;         // f32 [A, T]
  View mask;        // u8  [T, A, S / 8]  from forward
  View cu_seqlens;  // i32 [B + 1]
  View dqkv;        // io  [T, 3, A, D]  out
  View dbias;       // io  [3 A D]       out
  std::span<const SequenceGroup> groups;
  Dropout dropout;
  int64_t max_seq_tokens = 512;
  float scale = 0.125f;
  Accumulate accumulate = Accumulate::kNo;  // into dbias
  Fp8Result dqkv_fp8 = {};                  // [T, 3 A D]  out in place of dqkv
};

/// The facts that determine which kernels support a call. They do not depend on a batch: a run uses
/// the same kernels in every step and after a resume, with the same roundings at the same T.
struct AttentionCall {
  DType io;
  int64_t head_size;         // D
  int64_t max_seq_tokens;    // S: maximum length of a sequence
  bool has_dropout = false;  // dropout of probabilities: the gradient then reads the mask
  bool is_aligned = true;    // every io view, and mask of a head, is at a multiple of 16 bytes
};

void validate(const AttentionFwd& args);
void validate(const AttentionBwd& args);

}  // namespace bertha

#pragma once

#include <string>

#include "kernels/cuda/cuda_options.h"
#include "kernels/ops/attention.h"

namespace bertha {

/// Whether attention of this dtype has kernels with tensor cores. Without them a step of 12 layers
/// of 768 columns, 8 heads of 96, takes 1,838 ms, with them 35 (kernels/measured/attention.md).
bool has_tensor_cores(DType dtype);

/// Kernels with tensor cores support heads of multiples of 8 columns: other heads are copied to
/// padded_head_size() columns, and the results back.
int64_t padded_head_size(int64_t head_size);
bool needs_padded_heads(DType dtype, int64_t head_size);

/// The kernels of each direction: grouped, persistent or split, never auto. They save the same
/// things between the directions, so any two go together.
struct AttentionKernels {
  CudaOptions::AttentionVariant forward = CudaOptions::AttentionVariant::kGrouped;
  CudaOptions::AttentionVariant backward = CudaOptions::AttentionVariant::kGrouped;
  // Grouped kernels have one launch for sequences of all lengths, up to S tokens each, so that a
  // graph can have it; see sequence_tiles.h.
  bool one_launch = false;
};

/// The largest head size of grouped attention.
inline constexpr int kMaxHeadSize = 128;

/// The rule. The grouped kernels support head sizes up to kMaxHeadSize. The persistent ones, whole
/// or split, support f16 and bf16, head sizes up to 64, S up to 512 and views aligned to 16 bytes,
/// on GPUs that run the kernels of sm_90a; their backward supports dropout if S is a multiple of
/// 128. auto selects the persistent kernel of each direction if it supports the call, because it is
/// measured to be faster. Its grouped kernels have one launch with tensor cores and S up to 512.
///
/// Errors    Error(kUsage): a larger head size; or persistent or split is requested and one
///           direction of it does not support the call. They do not fall back silently, because a
///           user who names kernels measures them or repeats a run with them. auto falls back.
AttentionKernels choose_attention(CudaOptions::AttentionVariant asked, const AttentionCall& call);

/// The size of a batch, without the lengths of its sequences: a graph is captured once for batches
/// of many lengths.
struct AttentionBatchSize {
  int64_t tokens;  // T
  int64_t heads;   // A
  int sm_count;
};

/// The kernels for one batch, among those chosen for `asked`: if auto selects persistent kernels,
/// batches of few tokens use the split ones. Otherwise one block would work on the longest sequence
/// for longer than all other blocks together.
AttentionKernels for_batch(const AttentionKernels& chosen, CudaOptions::AttentionVariant asked,
                           int64_t max_seq_tokens, const AttentionBatchSize& size);

/// "grouped", "persistent", "split", or "persistent forward, grouped backward".
std::string text(const AttentionKernels& kernels);

}  // namespace bertha

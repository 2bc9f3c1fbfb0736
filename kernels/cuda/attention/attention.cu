// Attention: which kernels process which sequences, and on which stream.
//
// Grouped (for its conditions see choice.h): every length bucket of sequences is a separate launch
// (two in backward) on its own side stream, the longest first, so that the last blocks of one group
// share the GPU with the next; or all sequences are one group, whose launches a graph can repeat,
// with as many blocks as T and B may need (sequence_tiles.h). A small kernel zeroes the padding
// rows. Persistent: one launch for all; split, its items are parts of sequences, and in backward a
// second launch adds their parts of dQ. The persistent backward kernel, unless split, can store its
// result in e5m2; after other kernels Quantize rounds it.
//
// Kernels with tensor cores have heads of multiples of 8 columns; others are copied to such heads
// and back.

#include <algorithm>
#include <vector>

#include "kernels/base/cuda/alignment.h"
#include "kernels/base/cuda/column_sums.cuh"
#include "kernels/base/cuda/dependent_launch.cuh"
#include "kernels/base/cuda/fp8.cuh"
#include "kernels/base/cuda/operations.h"
#include "kernels/base/cuda/types.cuh"
#include "kernels/base/dropout_bits.h"
#include "kernels/cuda/attention/choice.h"
#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/attention/padded_heads.h"
#include "kernels/cuda/attention/side_streams.h"
#include "kernels/cuda/chosen_options.h"
#include "kernels/cuda/gemm/linear_kernels.h"
#include "kernels/ops/attention.h"

namespace bertha {
namespace {

constexpr int kClearThreads = 256;

/// Zeroes rows [cu_seqlens[B], T) of `rows`, and of `lse` unless that is null.
__global__ void __launch_bounds__(kClearThreads)
    clear_padding_kernel(const int32_t* live_tokens, int64_t tokens, int64_t row_bytes,
                         unsigned char* rows, int64_t heads, float* lse) {
  const int64_t live = live_tokens[0];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  // Rows have an even number of bytes; no greater alignment is guaranteed for all shapes.
  uint16_t* halves = reinterpret_cast<uint16_t*>(rows);
  for (int64_t i = live * (row_bytes / 2) + first; i < tokens * (row_bytes / 2); i += stride) {
    halves[i] = 0;
  }
  if (lse == nullptr) return;
  const int64_t padding = tokens - live;
  for (int64_t i = first; i < padding * heads; i += stride) {
    lse[i / padding * tokens + live + i % padding] = 0.0f;
  }
}

void clear_padding(const CudaContext& context, cudaStream_t stream, const View& cu_seqlens,
                   const View& rows, const View* lse) {
  const int64_t tokens = rows.extent(0);
  launch_kernel(stream, clear_padding_kernel, {context.sm_count, kClearThreads},
                elements<int32_t>(cu_seqlens) + cu_seqlens.extent(0) - 1, tokens,
                rows.bytes() / tokens, static_cast<unsigned char*>(rows.data),
                lse == nullptr ? 0 : lse->extent(0),
                lse == nullptr ? nullptr : elements<float>(*lse));
}

AttentionBatch batch_of(const View& qkv, const View& cu_seqlens, int64_t max_seq_tokens) {
  return {.cu_seqlens = elements<int32_t>(cu_seqlens),
          .tokens = qkv.extent(0),
          .heads = static_cast<int>(qkv.extent(2)),
          .head_size = static_cast<int>(qkv.extent(3)),
          .mask_words = static_cast<int>(max_seq_tokens / 32)};
}

AttentionDropout dropout_of(const Dropout& dropout) {
  if (dropout.probability == 0.0f) return {};
  AttentionDropout of{.random = elements<uint64_t>(dropout.random),
                      .threshold = drop_threshold(dropout.probability),
                      .digits = {},
                      .site = dropout.site,
                      .keep = 1.0f - dropout.probability};
  for (int digit = 0; digit < kDropoutDigits; ++digit) {
    of.digits[digit] = threshold_digit(of.threshold, digit) ? ~0u : 0u;
  }
  return of;
}

/// All sequences as one group; no group for 0 sequences.
std::vector<SequenceGroup> one_group(int64_t seqs, int64_t tokens, int64_t max_seq_tokens) {
  if (seqs == 0) return {};
  return {{.num_seqs = seqs,
           .num_tokens = tokens,  // at most
           .longest_seq_tokens = max_seq_tokens,
           .bucket_tokens = max_seq_tokens}};
}

/// Groups that have tokens, the longest first.
std::vector<SequenceGroup> by_length(std::span<const SequenceGroup> groups) {
  std::vector<SequenceGroup> sorted;
  for (const SequenceGroup& group : groups) {
    if (group.num_tokens > 0) sorted.push_back(group);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.longest_seq_tokens > b.longest_seq_tokens;
  });
  return sorted;
}

/// The kernels for this call. Error(kUsage) if the requested kernels do not support it.
template <class Args>
AttentionKernels kernels_for(const CudaContext& context, const Args& args, bool is_aligned) {
  const CudaOptions::AttentionVariant asked = chosen_options(context).attention;
  const AttentionKernels chosen =
      choose_attention(asked, {.io = args.qkv.dtype,
                               .head_size = args.qkv.extent(3),
                               .max_seq_tokens = args.max_seq_tokens,
                               .has_dropout = args.dropout.probability != 0.0f,
                               .is_aligned = is_aligned});
  return for_batch(
      chosen, asked, args.max_seq_tokens,
      {.tokens = args.qkv.extent(0), .heads = args.qkv.extent(2), .sm_count = context.sm_count});
}

PersistentLaunch persistent_launch(const CudaContext& context, DType dtype,
                                   CudaOptions::AttentionVariant kernels) {
  return {.stream = context.stream,
          .dtype = dtype,
          .sm_count = context.sm_count,
          .counter = context.arrivals.get(),
          .split = kernels == CudaOptions::AttentionVariant::kSplit};
}

/// dbias (+)= column sums of dqkv, by a pass over it.
void sum_gradient(CudaContext& context, const AttentionBwd& args) {
  if (!args.dbias.has_data()) return;
  const View rows =
      args.dqkv.reshaped({args.dqkv.extent(0), args.dqkv.elements() / args.dqkv.extent(0)});
  sum_columns(context, rows, args.accumulate, args.dbias);
}

/// Backward by the persistent kernels; dbias (+)= the sums that they have stored. Returns whether
/// dqkv_fp8 was written in place of dqkv.
bool run_persistent_backward(CudaContext& context, const AttentionBwd& args,
                             AttentionBwdParams params, const PersistentLaunch& on) {
  const int64_t seqs = args.cu_seqlens.extent(0) - 1;
  params.batch.seqs = static_cast<int>(seqs);
  const bool sums_in_kernel = args.dbias.has_data() && seqs <= kMaxSummedSeqs;
  const int64_t sum_rows =
      sums_in_kernel ? seqs * (on.split ? kColumnSumsOfSplitSeq : kColumnSumsOfSeq) : 0;
  const int64_t columns = args.dout.elements() / args.dout.extent(0);
  const int64_t part_floats = on.split ? kMaxKeyParts * args.dout.elements() : 0;
  auto* const scratch =
      static_cast<float*>(context.scratch.take(column_sum_bytes(sum_rows, 3 * columns, 1) +
                                               part_floats * static_cast<int64_t>(sizeof(float))));
  if (on.split) params.dquery_parts = scratch;
  if (sums_in_kernel) params.column_sums = scratch + part_floats;
  const Fp8Result& result = args.dqkv_fp8;
  const bool rounds = result.q.has_data() && result.q.dtype == DType::kE5M2 && !on.split &&
                      params.batch.head_size % 16 == 0 && is_aligned({result.q.data}) &&
                      (sums_in_kernel || !args.dbias.has_data());
  const Fp8Sink sink = sink_of(result);
  launch_persistent_backward(on, params, rounds ? &sink : nullptr);
  if (sums_in_kernel) {
    add_up_columns(context, params.column_sums, sum_rows, args.accumulate, args.dbias);
  } else {
    sum_gradient(context, args);
  }
  return rounds;
}

/// Calls work(launch, params) for every group on its side stream, then pad() on the last one.
template <class Args, class Params, class Work, class Pad>
void run_groups(CudaContext& context, const Args& args, bool one_launch, Params params,
                const Work& work, const Pad& pad) {
  const int64_t head_size = params.batch.head_size;
  BERTHA_CHECK(head_size <= kMaxHeadSize, "head size ", head_size, ", want at most ", kMaxHeadSize);
  const std::vector<SequenceGroup> sorted =
      one_launch
          ? one_group(args.cu_seqlens.extent(0) - 1, params.batch.tokens, args.max_seq_tokens)
          : by_length(args.groups);
  const int count = static_cast<int>(sorted.size());
  auto& side_streams = context.state<SideStreams>();
  side_streams.fork(count);
  for (int i = 0; i < count; ++i) {
    const SequenceGroup& group = sorted[static_cast<size_t>(i)];
    const int64_t elements = group.longest_seq_tokens * 3 * params.batch.heads * head_size;
    BERTHA_CHECK(elements <= INT32_MAX, "qkv of a sequence of ", group.longest_seq_tokens,
                 " tokens has ", elements, " elements, want fewer than 2^31");
    params.batch.first_seq = static_cast<int>(group.first_seq);
    params.batch.seqs = static_cast<int>(group.num_seqs);
    params.batch.longest = static_cast<int>(group.longest_seq_tokens);
    work(AttentionLaunch{side_streams.stream(i), args.qkv.dtype, group.bucket_tokens, one_launch},
         params);
  }
  pad(side_streams.stream(std::max(count - 1, 0)));
  side_streams.join();
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const AttentionFwd& args) {
  if (args.qkv.elements() == 0) return;
  if (needs_padded_heads(args.qkv.dtype, args.qkv.extent(3))) {
    AttentionFwd padded = args;
    place_padded_heads(context, {&padded.qkv, &padded.out});
    copy_heads(context, args.qkv, padded.qkv);
    run_cuda(context, padded);
    return copy_heads(context, padded.out, args.out);
  }
  AttentionFwdParams params{.batch = batch_of(args.qkv, args.cu_seqlens, args.max_seq_tokens),
                            .dropout = dropout_of(args.dropout),
                            .qkv = args.qkv.data,
                            .out = args.out.data,
                            .lse = elements<float>(args.lse),
                            .mask = static_cast<uint32_t*>(args.mask.data),
                            .scale = args.scale};
  const bool aligned = is_aligned({params.qkv, params.out});
  const AttentionKernels kernels = kernels_for(context, args, aligned);
  if (kernels.forward != CudaOptions::AttentionVariant::kGrouped) {
    params.batch.seqs = static_cast<int>(args.cu_seqlens.extent(0) - 1);
    return launch_persistent_forward(persistent_launch(context, args.qkv.dtype, kernels.forward),
                                     params);
  }
  const bool mma = aligned && has_tensor_cores(args.qkv.dtype);
  run_groups(
      context, args, kernels.one_launch, params,
      [&](const AttentionLaunch& launch, const AttentionFwdParams& of_group) {
        return mma ? launch_mma_forward(launch, of_group) : launch_plain_forward(launch, of_group);
      },
      [&](cudaStream_t stream) {
        clear_padding(context, stream, args.cu_seqlens, args.out, &args.lse);
      });
}

namespace {

/// Returns whether dqkv_fp8 was written in place of dqkv.
bool run_backward(CudaContext& context, const AttentionBwd& args) {
  if (needs_padded_heads(args.qkv.dtype, args.qkv.extent(3))) {
    AttentionBwd padded = args;
    padded.dbias = {};
    padded.dqkv_fp8 = {};
    place_padded_heads(context, {&padded.qkv, &padded.dout, &padded.out, &padded.dqkv});
    copy_heads(context, args.qkv, padded.qkv);
    copy_heads(context, args.dout, padded.dout);
    copy_heads(context, args.out, padded.out);
    run_backward(context, padded);
    copy_heads(context, padded.dqkv, args.dqkv);
    sum_gradient(context, args);
    return false;
  }
  AttentionBwdParams params{.batch = batch_of(args.qkv, args.cu_seqlens, args.max_seq_tokens),
                            .dropout = dropout_of(args.dropout),
                            .dout = args.dout.data,
                            .qkv = args.qkv.data,
                            .out = args.out.data,
                            .lse = elements<float>(args.lse),
                            .mask = static_cast<const uint32_t*>(args.mask.data),
                            .dqkv = args.dqkv.data,
                            .scale = args.scale};
  const bool aligned = is_aligned({params.dout, params.qkv, params.out, params.dqkv});
  // TMA reads the mask at multiples of 16 bytes only: at any other address the GPU
  // stops with "illegal instruction".
  const bool aligned_mask = params.dropout.random == nullptr || is_aligned({args.mask.data});
  const AttentionKernels kernels = kernels_for(context, args, aligned && aligned_mask);
  if (kernels.backward != CudaOptions::AttentionVariant::kGrouped &&
      args.cu_seqlens.extent(0) > 1) {
    return run_persistent_backward(context, args, params,
                                   persistent_launch(context, args.qkv.dtype, kernels.backward));
  }
  const int64_t rows = args.qkv.extent(0) * args.qkv.extent(2);
  params.delta =
      static_cast<float*>(context.scratch.take(rows * static_cast<int64_t>(sizeof(float))));
  const bool mma = aligned && has_tensor_cores(args.qkv.dtype);
  run_groups(
      context, args, kernels.one_launch, params,
      [&](const AttentionLaunch& launch, const AttentionBwdParams& of_group) {
        if (!mma) return launch_plain_backward(launch, of_group);
        launch_mma_query_gradient(launch, of_group);
        launch_mma_key_gradient(launch, of_group);
      },
      [&](cudaStream_t stream) {
        clear_padding(context, stream, args.cu_seqlens, args.dqkv, nullptr);
      });
  sum_gradient(context, args);
  return false;
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const AttentionBwd& args) {
  if (args.qkv.elements() == 0) return context.add_nothing(args.accumulate, args.dbias);
  if (args.dqkv_fp8.q.has_data()) context.require_fp8(AttentionBwd::kName);
  const bool rounds = run_backward(context, args);
  if (args.dqkv_fp8.q.has_data() && !rounds) {
    run_cuda(context, quantize_to(args.dqkv_fp8, args.dqkv));
  }
}

}  // namespace bertha

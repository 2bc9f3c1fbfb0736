// Attention on CUDA cores, for f32 and for head sizes that the tensor-core kernels lack: one warp
// per query (forward, dQ) or key (dK, dV) and head, 32 rows of the other kind at a time: a lane per
// row for the scores, then a lane per column for the sums. Simple, not fast: every warp reads all
// rows again. No atomics; the order of every sum is fixed.

#include "kernels/base/cuda/block_reduce.cuh"
#include "kernels/base/dropout_bits.h"
#include "kernels/cuda/attention/choice.h"
#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/attention/launch.cuh"

namespace bertha {
namespace {

constexpr int kWarps = 4;  // rows per thread block
constexpr int kThreads = kWarps * kWarpThreads;
constexpr int kColumns = kMaxHeadSize / kWarpThreads;  // per row and lane

/// A row of up to 128 elements over the lanes of a warp: column lane + 32 i.
struct WarpRow {
  float column[kColumns] = {};

  template <class T>
  __device__ void add(float factor, const T* row, int head_size, int lane) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int at = lane + i * kWarpThreads;
      if (at < head_size) column[i] += factor * to_float(row[at]);
    }
  }
  __device__ void multiply(float factor) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) column[i] *= factor;
  }
  template <class T>
  __device__ void store(T* row, int head_size, int lane) const {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int at = lane + i * kWarpThreads;
      if (at < head_size) row[at] = from_float<T>(column[i]);
    }
  }
};

template <class T>
__device__ float inner_product(const T* a, const T* b, int head_size) {
  float sum = 0.0f;
  for (int i = 0; i < head_size; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

/// The work of a warp, and the place of its head.
struct PlainRow {
  HeadOfSequence at;
  int row;  // this warp's row in the sequence
  int lane;
  int head_size;
  int64_t qkv_stride;
  int64_t out_stride;

  __device__ explicit PlainRow(const AttentionBatch& batch)
      : at(head_of_block<kWarps>(batch)),
        row(at.first_row + static_cast<int>(threadIdx.x) / kWarpThreads),
        lane(static_cast<int>(threadIdx.x) % kWarpThreads),
        head_size(batch.head_size),
        qkv_stride(int64_t{3} * batch.heads * batch.head_size),
        out_stride(int64_t{batch.heads} * batch.head_size) {}

  /// Element of row `i` in the tensor of part 0, 1, 2: query, key, value.
  __device__ int64_t in_qkv(int i, int part) const {
    return (at.begin + i) * qkv_stride + part * out_stride + int64_t{at.head} * head_size;
  }
  __device__ int64_t in_out(int i) const {
    return (at.begin + i) * out_stride + int64_t{at.head} * head_size;
  }
  __device__ int64_t in_lse(const AttentionBatch& batch, int i) const {
    return at.head * batch.tokens + at.begin + i;
  }
  /// First mask word of query `i`.
  __device__ int64_t in_mask(const AttentionBatch& batch, int i) const {
    return ((at.begin + i) * batch.heads + at.head) * batch.mask_words;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) plain_forward_kernel(const AttentionFwdParams params) {
  const PlainRow own(params.batch);
  if (own.row >= own.at.length) return;
  const T* qkv = static_cast<const T*>(params.qkv);
  const T* query = qkv + own.in_qkv(own.row, 0);
  const bool dropout = params.dropout.random != nullptr;
  const int64_t mask_row = own.in_mask(params.batch, own.row);
  WarpRow sum;
  float top = -kInfinity;
  float total = 0.0f;
  for (int first = 0; first < own.at.length; first += kWarpThreads) {
    const int key = first + own.lane;
    float score = -kInfinity;
    if (key < own.at.length) {
      score = params.scale * inner_product(query, qkv + own.in_qkv(key, 1), own.head_size);
    }
    float raised[1] = {fmaxf(top, score)};
    reduce_lanes(raised, kWarpThreads, Larger());
    const float factor = expf(top - raised[0]);
    const float probability = expf(score - raised[0]);
    top = raised[0];
    total = total * factor + warp_sum(probability);
    sum.multiply(factor);
    uint32_t kept = ~0u;
    if (dropout) {
      const int64_t group = mask_row + first / kDropoutGroup;
      kept = kept_bits(params.dropout.random[0], params.dropout.random[1], params.dropout.site,
                       group, params.dropout.threshold);
      if (own.lane == 0) params.mask[group] = kept;
    }
    const int count = min(kWarpThreads, own.at.length - first);
    for (int i = 0; i < count; ++i) {
      const float weight = __shfl_sync(kFullWarp, probability, i);
      if ((kept >> i & 1u) == 0) continue;
      sum.add(weight, qkv + own.in_qkv(first + i, 2), own.head_size, own.lane);
    }
  }
  sum.multiply(1.0f / (total * params.dropout.keep));
  sum.store(static_cast<T*>(params.out) + own.in_out(own.row), own.head_size, own.lane);
  if (own.lane == 0) params.lse[own.in_lse(params.batch, own.row)] = top + logf(total);
}

/// keep times the probability after dropout, and keep / scale times the gradient of the score.
struct Gradients {
  float probability;
  float score;
};

template <class T>
__device__ Gradients gradients_at(const AttentionBwdParams& params, const PlainRow& own, int query,
                                  int key) {
  const T* qkv = static_cast<const T*>(params.qkv);
  const int64_t statistics = own.in_lse(params.batch, query);
  const float score = params.scale * inner_product(qkv + own.in_qkv(query, 0),
                                                   qkv + own.in_qkv(key, 1), own.head_size);
  const float probability = expf(score - params.lse[statistics]);
  bool kept = true;
  if (params.dropout.random != nullptr) {
    kept = (params.mask[own.in_mask(params.batch, query) + key / 32] >> (key % 32) & 1u) != 0;
  }
  float dp = 0.0f;
  if (kept) {
    dp = inner_product(static_cast<const T*>(params.dout) + own.in_out(query),
                       qkv + own.in_qkv(key, 2), own.head_size);
  }
  return {kept ? probability : 0.0f, probability * (dp - params.delta[statistics])};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_query_gradient_kernel(const AttentionBwdParams params) {
  const PlainRow own(params.batch);
  if (own.row >= own.at.length) return;
  const T* qkv = static_cast<const T*>(params.qkv);
  const int64_t in_out = own.in_out(own.row);
  float product = 0.0f;
  for (int i = own.lane; i < own.head_size; i += kWarpThreads) {
    product += to_float(static_cast<const T*>(params.dout)[in_out + i]) *
               to_float(static_cast<const T*>(params.out)[in_out + i]);
  }
  const float delta = params.dropout.keep * warp_sum(product);
  if (own.lane == 0) params.delta[own.in_lse(params.batch, own.row)] = delta;
  __syncwarp();  // the lanes read it back
  WarpRow sum;
  for (int first = 0; first < own.at.length; first += kWarpThreads) {
    const int key = first + own.lane;
    float dp = 0.0f;
    if (key < own.at.length) dp = gradients_at<T>(params, own, own.row, key).score;
    const int count = min(kWarpThreads, own.at.length - first);
    for (int i = 0; i < count; ++i) {
      sum.add(__shfl_sync(kFullWarp, dp, i), qkv + own.in_qkv(first + i, 1), own.head_size,
              own.lane);
    }
  }
  sum.multiply(params.scale / params.dropout.keep);
  sum.store(static_cast<T*>(params.dqkv) + own.in_qkv(own.row, 0), own.head_size, own.lane);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_key_gradient_kernel(const AttentionBwdParams params) {
  const PlainRow own(params.batch);
  if (own.row >= own.at.length) return;
  const T* qkv = static_cast<const T*>(params.qkv);
  const T* dout = static_cast<const T*>(params.dout);
  WarpRow dkey;
  WarpRow dvalue;
  for (int first = 0; first < own.at.length; first += kWarpThreads) {
    const int query = first + own.lane;
    Gradients at{};
    if (query < own.at.length) at = gradients_at<T>(params, own, query, own.row);
    const int count = min(kWarpThreads, own.at.length - first);
    for (int i = 0; i < count; ++i) {
      dkey.add(__shfl_sync(kFullWarp, at.score, i), qkv + own.in_qkv(first + i, 0), own.head_size,
               own.lane);
      dvalue.add(__shfl_sync(kFullWarp, at.probability, i), dout + own.in_out(first + i),
                 own.head_size, own.lane);
    }
  }
  dkey.multiply(params.scale / params.dropout.keep);
  dvalue.multiply(1.0f / params.dropout.keep);
  T* dqkv = static_cast<T*>(params.dqkv);
  dkey.store(dqkv + own.in_qkv(own.row, 1), own.head_size, own.lane);
  dvalue.store(dqkv + own.in_qkv(own.row, 2), own.head_size, own.lane);
}

}  // namespace

void launch_plain_forward(const AttentionLaunch& launch, AttentionFwdParams params) {
  const int64_t blocks = blocks_of_heads(params.batch, kWarps, launch.one_launch);
  dispatch_io(launch.dtype, [&]<class T>(TypeTag<T>) {
    launch_kernel(launch.stream, plain_forward_kernel<T>, {blocks, kThreads}, params);
  });
}

void launch_plain_backward(const AttentionLaunch& launch, AttentionBwdParams params) {
  const int64_t blocks = blocks_of_heads(params.batch, kWarps, launch.one_launch);
  dispatch_io(launch.dtype, [&]<class T>(TypeTag<T>) {
    launch_kernel(launch.stream, plain_query_gradient_kernel<T>, {blocks, kThreads}, params);
    launch_kernel(launch.stream, plain_key_gradient_kernel<T>, {blocks, kThreads}, params);
  });
}

}  // namespace bertha

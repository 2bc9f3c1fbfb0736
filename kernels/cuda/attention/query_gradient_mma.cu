// dQ on mma.sync.m16n8k16: the first of the two backward kernels. A block per (64 queries, head,
// sequence) loops over the keys and stores delta = rowsum(dO * O) for key_gradient_mma.cu. S is
// computed in both kernels, 7 GEMMs instead of 5, but no sum crosses a block: no atomics, no f32
// copy of dQ, sequences of any length. 12 warps of 168 registers per SM.
//
// Bound by  latencies between tensor cores, ldmatrix (65 % of its bandwidth) and registers: 38 % of
//           the issue slots are in use.
// Figure    BERT-large, 96 Wikipedia sequences, dropout 0.1, one H200: 562 us for both kernels.
//           Variants: kernels/measured/attention.md.

#include "kernels/cuda/attention/backward.cuh"
#include "kernels/cuda/attention/launch.cuh"

namespace bertha {
namespace {

/// keep * rowsum(dO * O) of the warp's rows, to `own` (shared, one per row) and to memory. Rows
/// past the sequence get 0.
template <class Shape>
__device__ __forceinline__ void write_delta(const HeadPointers<Shape>& head, float keep,
                                            const unsigned char* out_tile,
                                            const unsigned char* dout_tile, float* own, int warp,
                                            int lane, int first, int length) {
  using T = typename Shape::T;
  constexpr int kRowsPerPass = kWarpThreads / Shape::kChunks;
  const int chunk = lane % Shape::kChunks;
#pragma unroll
  for (int pass = 0; pass < Shape::kWarpRows / kRowsPerPass; ++pass) {
    const int row = warp * Shape::kWarpRows + pass * kRowsPerPass + lane / Shape::kChunks;
    const uint32_t offset = chunk_offset<Shape::kHeadSize>(row, chunk);
    const uint4 out_bits = *reinterpret_cast<const uint4*>(out_tile + offset);
    const uint4 dout_bits = *reinterpret_cast<const uint4*>(dout_tile + offset);
    const T* out = reinterpret_cast<const T*>(&out_bits);
    const T* dout = reinterpret_cast<const T*>(&dout_bits);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += to_float(out[i]) * to_float(dout[i]);
#pragma unroll
    for (int distance = Shape::kChunks / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kFullWarp, sum, distance);
    }
    if (chunk == 0) {
      own[row] = sum * keep;
      if (first + row < length) head.delta[first + row] = sum * keep;
    }
  }
  __syncwarp();
}

/// Starts copying the words of forward's mask for the block's queries and the 64 keys of `tile`, to
/// u32 [2, kRows].
template <class Shape>
__device__ __forceinline__ void copy_mask_async(uint32_t to, const AttentionBwdParams& params,
                                                const HeadOfSequence& at, int tile) {
#pragma unroll
  for (int i = 0; i < 2 * Shape::kRows / Shape::kThreads; ++i) {
    const int word_and_row = i * Shape::kThreads + static_cast<int>(threadIdx.x);
    const int row = at.first_row + word_and_row % Shape::kRows;
    const int word = 2 * tile + word_and_row / Shape::kRows;
    const bool valid = row < at.length && 32 * word < at.length;
    const int64_t query = at.begin + (valid ? row : 0);
    const uint32_t* words =
        params.mask + (query * params.batch.heads + at.head) * params.batch.mask_words;
    cp_async_4(to + 4 * word_and_row, words + (valid ? word : 0), valid);
  }
}

template <class Shape>
constexpr int kQuerySharedBytes = (2 * Shape::kRows + 4 * kInnerRows) * Shape::kRowBytes
                                  +  // queries, dO; two stages of keys, values
                                  Shape::kRows * 4 * (1 + 2 * 2);

/// A warp's 16 queries, with the accumulators of their gradient.
template <class Shape>
struct QueryGradient {
  using T = typename Shape::T;
  static constexpr int kHeadSize = Shape::kHeadSize;
  static_assert(Shape::kWarpRows == 16);

  uint32_t queries;  // this warp's first row in the tile of queries, and of dO
  uint32_t douts;
  float acc_dq[Shape::kColumns][4] = {};  // sums of keep / scale * dS * key
  float lse[2];                           // in units of log2
  float delta[2];                         // times keep

  __device__ __forceinline__ void init(uint32_t query_tile, uint32_t dout_tile, const float* deltas,
                                       const float* lse_rows, int first, int length, int warp,
                                       int lane) {
    queries = query_tile + static_cast<uint32_t>(warp * Shape::kWarpRows * Shape::kRowBytes);
    douts = dout_tile + static_cast<uint32_t>(warp * Shape::kWarpRows * Shape::kRowBytes);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int own = warp * Shape::kWarpRows + half * 8 + lane / 4;
      delta[half] = deltas[own];
      lse[half] = first + own < length ? lse_rows[first + own] * kLog2E : 0.0f;
    }
  }

  /// One slice of 32 keys from row 32 * kIndex of the tiles on. `remaining`: keys from there on;
  /// kTail: fewer than 32.
  template <int kIndex, bool kTail>
  __device__ __forceinline__ void process_keys(uint32_t keys, uint32_t values, int remaining,
                                               int lane, float scale, const uint32_t* mask) {
    const auto by_columns = columns_first<kHeadSize>(lane);
    float score[4][4] = {};
    float dp[4][4] = {};  // dP, then dS
    const auto own_rows = rows_first<kHeadSize>(lane);
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      uint32_t query[4];
      uint32_t dout[4];
      ldmatrix_x4(query, own_rows.at(queries, 0, step));
      ldmatrix_x4(dout, own_rows.at(douts, 0, step));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t key[4];
        uint32_t value[4];
        ldmatrix_x4(key, by_columns.at(keys, kIndex * kSlice + 16 * i, step));
        ldmatrix_x4(value, by_columns.at(values, kIndex * kSlice + 16 * i, step));
        mma_column_pair<T>(score, i, query, key);
        mma_column_pair<T>(dp, i, dout, value);
      }
    }
    uint32_t dscore[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t even = 0;
      uint32_t odd = 0;
      if constexpr (Shape::kDropout) {
        const uint32_t word = mask[kIndex * Shape::kRows + half * 8 + lane / 4];
        even = word << (7 - lane % 4 * 2);
        odd = word << (6 - lane % 4 * 2);
      }
#pragma unroll
      for (int column = 0; column < 4; ++column) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& at = dp[column][2 * half + i];
          if constexpr (Shape::kDropout) {
            at = masked(at, mask_of_byte(i == 0 ? even : odd, column));
          }
          const float probability =
              exp2_approximate(score[column][2 * half + i] * scale - lse[half]);
          at = probability * (at - delta[half]);
          // Keys past the sequence have a score of 0, not of -infinity.
          if (kTail && 8 * column + lane % 4 * 2 + i >= remaining) at = 0.0f;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) pack_a_operand<T>(dscore[i], dp[2 * i], dp[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      gemm_ab<Shape>(acc_dq, dscore[i], keys, kIndex * kSlice + 16 * i, lane);
    }
  }
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    query_gradient_kernel(const __grid_constant__ AttentionBwdParams params) {
  constexpr int kHeadSize = Shape::kHeadSize;
  constexpr int kThreads = Shape::kThreads;
  constexpr int kRowsBytes = Shape::kRows * Shape::kRowBytes;
  constexpr int kTileBytes = kInnerRows * Shape::kRowBytes;
  extern __shared__ __align__(128) unsigned char shared[];

  const HeadOfSequence at = head_of_block<Shape::kRows>(params.batch);
  if (at.first_row >= at.length) return;
  const HeadPointers<Shape> head(params, at);
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;

  const uint32_t query_tile = shared_address(shared);
  const uint32_t dout_tile = query_tile + kRowsBytes;
  float* deltas = reinterpret_cast<float*>(shared + 2 * kRowsBytes + 4 * kTileBytes);
  const uint32_t* masks = reinterpret_cast<const uint32_t*>(deltas + Shape::kRows);
  const auto stage = [&](int tile) {
    return query_tile + 2 * kRowsBytes + (tile & 1) * 2 * kTileBytes;
  };
  const auto copy_tile = [&](int tile) {
    copy_rows_async<kHeadSize, kInnerRows, kThreads>(stage(tile), head.key, head.qkv_stride,
                                                     tile * kInnerRows, at.length, head.head_size);
    copy_rows_async<kHeadSize, kInnerRows, kThreads>(stage(tile) + kTileBytes, head.value,
                                                     head.qkv_stride, tile * kInnerRows, at.length,
                                                     head.head_size);
    if constexpr (Shape::kDropout) {
      copy_mask_async<Shape>(shared_address(masks + (tile & 1) * 2 * Shape::kRows), params, at,
                             tile);
    }
  };
  copy_rows_async<kHeadSize, Shape::kRows, kThreads>(query_tile, head.query, head.qkv_stride,
                                                     at.first_row, at.length, head.head_size);
  copy_rows_async<kHeadSize, Shape::kRows, kThreads>(dout_tile, head.dout, head.out_stride,
                                                     at.first_row, at.length, head.head_size);
  // O is read once, into the memory of the second tile of keys and values.
  static_assert(kRowsBytes <= 2 * kTileBytes);
  copy_rows_async<kHeadSize, Shape::kRows, kThreads>(stage(1), head.out, head.out_stride,
                                                     at.first_row, at.length, head.head_size);
  copy_tile(0);
  cp_async_wait_all();
  __syncthreads();

  const bool active = at.first_row + warp * Shape::kWarpRows < at.length;
  const float scale = params.scale * kLog2E;
  QueryGradient<Shape> gradient;
  if (active) {
    write_delta<Shape>(head, params.dropout.keep, shared + 2 * kRowsBytes + 2 * kTileBytes,
                       shared + kRowsBytes, deltas, warp, lane, at.first_row, at.length);
    gradient.init(query_tile, dout_tile, deltas, head.lse, at.first_row, at.length, warp, lane);
  }
  const int tiles = (at.length + kInnerRows - 1) / kInnerRows;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait_all();
    __syncthreads();  // the tile has arrived, and no thread reads the previous one any more
    if (tile + 1 < tiles) copy_tile(tile + 1);
    if (!active) continue;
    const uint32_t* mask = masks + (tile & 1) * 2 * Shape::kRows + warp * Shape::kWarpRows;
    const int remaining = at.length - tile * kInnerRows;
    const uint32_t keys = stage(tile);
    const uint32_t values = keys + kTileBytes;
    if (remaining >= kInnerRows) {
      gradient.template process_keys<0, false>(keys, values, remaining, lane, scale, mask);
      gradient.template process_keys<1, false>(keys, values, remaining, lane, scale, mask);
    } else {
      gradient.template process_keys<0, true>(keys, values, remaining, lane, scale, mask);
      if (remaining > kSlice) {
        gradient.template process_keys<1, true>(keys, values, remaining - kSlice, lane, scale,
                                                mask);
      }
    }
  }
  if (!active) return;

  const float factor = params.scale / params.dropout.keep;
  store_rows<Shape>(shared, warp, lane, &gradient.acc_dq, {factor, factor}, head.dquery,
                    head.qkv_stride, at.first_row, at.length, head.head_size);
}

}  // namespace

template <int kHeadSize, int kTiles>
struct QueryPlan {
  static constexpr int kBlocks = 1;
  static constexpr int kWarps = 4;
  static constexpr int kResident = kHeadSize <= 64 ? 3 : 2;
};

void launch_mma_query_gradient(const AttentionLaunch& launch, AttentionBwdParams params) {
  dispatch_mma<QueryPlan>(launch, params, [&]<class Shape>(Shape shape) {
    launch_mma(query_gradient_kernel<Shape>, shape, kQuerySharedBytes<Shape>, launch, params);
  });
}

}  // namespace bertha

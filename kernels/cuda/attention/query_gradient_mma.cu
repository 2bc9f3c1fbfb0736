// dQ on tensor cores, mma.sync.m16n8k16: the first of two kernels of the backward. It walks over
// the keys and leaves delta = rowsum(dO * O) behind for the second, key_gradient_mma.cu. Scores are
// computed twice: 7 products instead of 5, but no sum crosses a thread block, so that there are no
// atomics and no f32 copy of dQ in memory, and sequences may have any length.
//
// Floors    BERT-large, 96 Wikipedia sequences, T = 24,576: both kernels 96.7 GFLOP counted as 5
//           products, 135 as 7; at the rate of mma.sync (some 60 % of wgmma) some 280 us for whole
//           tiles. 9 x 50.3 MB once each: 105 us.
// Limits    latencies between tensor cores, shared memory (ldmatrix, 65 % of its bandwidth) and
//           registers: 8 to 12 warps fit, 38 % of the issue slots are in use.
// Measured  microseconds, median of 30, both kernels, NVIDIA H200, bf16, 16 heads x 64, 2026-11-21;
//           in brackets PyTorch 2.11's variable-length FlashAttention-2 on the same machine and
//           lengths:
//             lengths                       no dropout    dropout 0.1
//             Wikipedia, 96, T = 24,580     484 (685)     575 (760)
//             48 x 512                      572 (685)     684 (764), of it 322 dQ, 366 dK and dV
//             192 x 128                     227 (351)     274 (371)
// Tried     at 48 x 512 with dropout: 32 queries a warp 14 us more, 16 warps of 128 registers 28
//           more, O and mask words through registers instead of cp.async 20 more. Placing exp among
//           the products by hand: no gain.

#include "kernels/cuda/attention/backward.cuh"
#include "kernels/cuda/attention/launch.cuh"

namespace bertha {
namespace {

/// keep * rowsum(dO * O) of the warp's rows, to `own` (shared, one per row) and to memory. Rows
/// behind the sequence get 0.
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
    copy_4_async(to + 4 * word_and_row, words + (valid ? word : 0), valid);
  }
}

template <class Shape>
constexpr int kQuerySharedBytes = (2 * Shape::kRows + 4 * kWalk) * Shape::kRowBytes
                                  +  // queries, dO; two stages of keys, values
                                  Shape::kRows * 4 * (1 + 2 * 2);

/// A warp's queries with their gradient in the making.
template <class Shape>
struct QueryGradient {
  using T = typename Shape::T;
  static constexpr int kBlocks = Shape::kBlocks;
  static constexpr int kHeadSize = Shape::kHeadSize;

  uint32_t queries;  // this warp's first row in the tile of queries, and of dO
  uint32_t douts;
  float sum[kBlocks][Shape::kColumns][4];  // of keep / scale * dS * key
  float lse[kBlocks][2];                   // in units of log2
  float delta[kBlocks][2];                 // times keep

  __device__ __forceinline__ void start(uint32_t query_tile, uint32_t dout_tile,
                                        const float* deltas, const float* lse_rows, int first,
                                        int length, int warp, int lane) {
    queries = query_tile + static_cast<uint32_t>(warp * Shape::kWarpRows * Shape::kRowBytes);
    douts = dout_tile + static_cast<uint32_t>(warp * Shape::kWarpRows * Shape::kRowBytes);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int row = warp * Shape::kWarpRows + block * 16;
#pragma unroll
      for (int column = 0; column < Shape::kColumns; ++column) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[block][column][i] = 0.0f;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int own = row + half * 8 + lane / 4;
        delta[block][half] = deltas[own];
        lse[block][half] = first + own < length ? lse_rows[first + own] * kLog2E : 0.0f;
      }
    }
  }

  /// One slice of 32 keys from row 32 * kIndex of the tiles on. `remaining`: keys from there on;
  /// kTail: fewer than 32.
  template <int kIndex, bool kTail>
  __device__ __forceinline__ void walk(uint32_t keys, uint32_t values, int remaining, int lane,
                                       float scale, const uint32_t* mask) {
    const auto by_columns = columns_first<kHeadSize>(lane);
    float score[kBlocks][4][4] = {};
    float slope[kBlocks][4][4] = {};  // of the dropped probabilities, then of the scores
    const auto own_rows = rows_first<kHeadSize>(lane);
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      uint32_t query[kBlocks][4];
      uint32_t dout[kBlocks][4];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        load_matrices(query[block], own_rows.at(queries, block * 16, step));
        load_matrices(dout[block], own_rows.at(douts, block * 16, step));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t key[4];
        uint32_t value[4];
        load_matrices(key, by_columns.at(keys, kIndex * kSlice + 16 * i, step));
        load_matrices(value, by_columns.at(values, kIndex * kSlice + 16 * i, step));
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          multiply_add<T>(score[block][2 * i], query[block], key[0], key[1]);
          multiply_add<T>(score[block][2 * i + 1], query[block], key[2], key[3]);
          multiply_add<T>(slope[block][2 * i], dout[block], value[0], value[1]);
          multiply_add<T>(slope[block][2 * i + 1], dout[block], value[2], value[3]);
        }
      }
    }
    uint32_t dscore[kBlocks][2][4];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t even = 0;
        uint32_t odd = 0;
        if constexpr (Shape::kDropout) {
          const uint32_t word = mask[kIndex * Shape::kRows + block * 16 + half * 8 + lane / 4];
          even = word << (7 - lane % 4 * 2);
          odd = word << (6 - lane % 4 * 2);
        }
#pragma unroll
        for (int column = 0; column < 4; ++column) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            float& at = slope[block][column][2 * half + i];
            if constexpr (Shape::kDropout) {
              at = masked(at, mask_of_byte(i == 0 ? even : odd, column));
            }
            const float probability =
                exp2_approximate(score[block][column][2 * half + i] * scale - lse[block][half]);
            at = probability * (at - delta[block][half]);
            // Keys behind the sequence have a score of 0, not of -infinity.
            if (kTail && 8 * column + lane % 4 * 2 + i >= remaining) at = 0.0f;
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        as_left_operand<T>(dscore[block][i], slope[block][2 * i], slope[block][2 * i + 1]);
      }
    }
    const auto by_rows = rows_first<kHeadSize>(lane);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int step = 0; step < Shape::kSteps; ++step) {
        uint32_t key[4];
        load_transposed(key, by_rows.at(keys, kIndex * kSlice + 16 * i, step));
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          multiply_add<T>(sum[block][2 * step], dscore[block][i], key[0], key[1]);
          multiply_add<T>(sum[block][2 * step + 1], dscore[block][i], key[2], key[3]);
        }
      }
    }
  }
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    query_gradient_kernel(const __grid_constant__ AttentionBwdParams params) {
  constexpr int kHeadSize = Shape::kHeadSize;
  constexpr int kThreads = Shape::kThreads;
  constexpr int kRowsBytes = Shape::kRows * Shape::kRowBytes;
  constexpr int kTileBytes = kWalk * Shape::kRowBytes;
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
    copy_rows_async<kHeadSize, kWalk, kThreads>(stage(tile), head.key, head.qkv_stride,
                                                tile * kWalk, at.length);
    copy_rows_async<kHeadSize, kWalk, kThreads>(stage(tile) + kTileBytes, head.value,
                                                head.qkv_stride, tile * kWalk, at.length);
    if constexpr (Shape::kDropout) {
      copy_mask_async<Shape>(shared_address(masks + (tile & 1) * 2 * Shape::kRows), params, at,
                             tile);
    }
  };
  copy_rows_async<kHeadSize, Shape::kRows, kThreads>(query_tile, head.query, head.qkv_stride,
                                                     at.first_row, at.length);
  copy_rows_async<kHeadSize, Shape::kRows, kThreads>(dout_tile, head.dout, head.out_stride,
                                                     at.first_row, at.length);
  // O is read once: it lies where the second tile of keys and values comes later.
  static_assert(kRowsBytes <= 2 * kTileBytes);
  copy_rows_async<kHeadSize, Shape::kRows, kThreads>(stage(1), head.out, head.out_stride,
                                                     at.first_row, at.length);
  copy_tile(0);
  wait_for_copies();
  __syncthreads();

  const bool active = at.first_row + warp * Shape::kWarpRows < at.length;
  const float scale = params.scale * kLog2E;
  QueryGradient<Shape> gradient;
  if (active) {
    write_delta<Shape>(head, params.dropout.keep, shared + 2 * kRowsBytes + 2 * kTileBytes,
                       shared + kRowsBytes, deltas, warp, lane, at.first_row, at.length);
    gradient.start(query_tile, dout_tile, deltas, head.lse, at.first_row, at.length, warp, lane);
  }
  const int tiles = (at.length + kWalk - 1) / kWalk;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_copies();
    __syncthreads();  // the tile is there, and nobody reads the one before it any more
    if (tile + 1 < tiles) copy_tile(tile + 1);
    if (!active) continue;
    const uint32_t* mask = masks + (tile & 1) * 2 * Shape::kRows + warp * Shape::kWarpRows;
    const int remaining = at.length - tile * kWalk;
    const uint32_t keys = stage(tile);
    const uint32_t values = keys + kTileBytes;
    if (remaining >= kWalk) {
      gradient.template walk<0, false>(keys, values, remaining, lane, scale, mask);
      gradient.template walk<1, false>(keys, values, remaining, lane, scale, mask);
    } else {
      gradient.template walk<0, true>(keys, values, remaining, lane, scale, mask);
      if (remaining > kSlice) {
        gradient.template walk<1, true>(keys, values, remaining - kSlice, lane, scale, mask);
      }
    }
  }
  if (!active) return;

  float factor[Shape::kBlocks][2];
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
    factor[block][0] = factor[block][1] = params.scale / params.dropout.keep;
  }
  store_rows<Shape>(shared, warp, lane, gradient.sum, factor, head.dquery, head.qkv_stride,
                    at.first_row, at.length);
}

}  // namespace

// 16 queries a warp: 12 warps with 168 registers (table above). 128 columns need the registers.
template <int kHeadSize, int kTiles>
struct QueryPlan {
  static constexpr int kBlocks = 1;
  static constexpr int kWarps = 4;
  static constexpr int kResident = kHeadSize <= 64 ? 3 : 2;
  static constexpr int kWalkTiles = 0;
};

void launch_mma_query_gradient(const AttentionLaunch& launch, AttentionBwdParams params) {
  dispatch_mma<QueryPlan>(launch, params, [&](auto shape) {
    using Shape = decltype(shape);
    launch_mma(query_gradient_kernel<Shape>, Shape{}, kQuerySharedBytes<Shape>, launch, params);
  });
}

}  // namespace bertha

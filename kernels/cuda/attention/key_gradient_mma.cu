// dK and dV on mma.sync.m16n8k16: the second of the two backward kernels (query_gradient_mma.cu). A
// block per (128 or 64 keys, head, sequence) loops over the queries. 32 keys a warp: two
// accumulators per key make ldmatrix traffic cost more than idle issue slots. Sequences of up to
// 128 tokens get blocks of 64 keys, because half of the blocks of 128 would be empty.

#include "kernels/cuda/attention/backward.cuh"
#include "kernels/cuda/attention/launch.cuh"

namespace bertha {
namespace {

/// Layout of a pipeline stage: 64 queries, their dO, lse, delta and mask words.
template <class Shape>
struct QueryStage {
  static constexpr int kMaskWords = Shape::kRows / 32;  // per query
  static constexpr int kTileBytes = kInnerRows * Shape::kRowBytes;
  static constexpr int kDout = kTileBytes;  // offsets
  static constexpr int kLse = 2 * kTileBytes;
  static constexpr int kDelta = kLse + 4 * kInnerRows;
  static constexpr int kMask = kDelta + 4 * kInnerRows;  // u32 [kMaskWords, 64]
  static constexpr int kBytes = kMask + 4 * kInnerRows * kMaskWords;
};

template <class Shape>
constexpr int kKeySharedBytes = 2 * Shape::kRows* Shape::kRowBytes + 2 * QueryStage<Shape>::kBytes;

template <class Shape>
__device__ __forceinline__ void copy_stage_async(uint32_t stage, const AttentionBwdParams& params,
                                                 const HeadPointers<Shape>& head,
                                                 const HeadOfSequence& at, int first_query) {
  using Stage = QueryStage<Shape>;
  constexpr int kThreads = Shape::kThreads;
  copy_rows_async<Shape::kHeadSize, kInnerRows, kThreads>(stage, head.query, head.qkv_stride,
                                                          first_query, at.length, head.head_size);
  copy_rows_async<Shape::kHeadSize, kInnerRows, kThreads>(
      stage + Stage::kDout, head.dout, head.out_stride, first_query, at.length, head.head_size);
  // Zeros past the end of the sequence: with q = dO = lse = delta = 0 a query adds nothing and is
  // finite.
  static_assert(kThreads % kInnerRows == 0);
  const int query = static_cast<int>(threadIdx.x) % kInnerRows;
  const int share = static_cast<int>(threadIdx.x) / kInnerRows;
  constexpr int kShares = kThreads / kInnerRows;
  const bool valid = first_query + query < at.length;
  const int64_t source = valid ? first_query + query : 0;
  if (share == 0) cp_async_4(stage + Stage::kLse + 4 * query, head.lse + source, valid);
  if (share == kShares - 1) {
    cp_async_4(stage + Stage::kDelta + 4 * query, head.delta + source, valid);
  }
  if constexpr (Shape::kDropout) {
    const int first_word = at.first_row / 32;
    const uint32_t* row = params.mask + ((at.begin + source) * params.batch.heads + at.head) *
                                            params.batch.mask_words;
    for (int word = share; word < Stage::kMaskWords; word += kShares) {
      const bool inside = valid && 32 * (first_word + word) < at.length;
      cp_async_4(stage + Stage::kMask + 4 * (word * kInnerRows + query),
                 row + (inside ? first_word + word : 0), inside);
    }
  }
}

/// A warp's keys and values, with the accumulators of their gradients. S is transposed, a row per
/// key, so that P^T and dS^T are left operands of dV and dK in registers.
template <class Shape>
struct KeyGradient {
  using T = typename Shape::T;
  static constexpr int kBlocks = Shape::kBlocks;
  static constexpr int kHeadSize = Shape::kHeadSize;

  float dkey[kBlocks][Shape::kColumns][4] = {};    // sums of keep / scale * dS * query
  float dvalue[kBlocks][Shape::kColumns][4] = {};  // sums of keep * dropped P * dO

  /// scores[key][query] of rows `own_row` and up of `own` against 32 rows of `others`.
  __device__ __forceinline__ static void gemm_abt(float (&scores)[kBlocks][4][4], uint32_t own,
                                                  int own_row, uint32_t others, int other_row,
                                                  int lane) {
    const auto by_rows = rows_first<kHeadSize>(lane);
    const auto by_columns = columns_first<kHeadSize>(lane);
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      uint32_t left[kBlocks][4];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        ldmatrix_x4(left[block], by_rows.at(own, own_row + 16 * block, step));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t right[4];
        ldmatrix_x4(right, by_columns.at(others, other_row + 16 * i, step));
        mma_column_pair<T>(scores, i, left, right);
      }
    }
  }

  /// Slice `slice` of 32 queries of a stage.
  __device__ __forceinline__ void process_queries(const unsigned char* shared, uint32_t keys,
                                                  uint32_t values, int stage_offset, int slice,
                                                  int warp, int lane, float scale) {
    using Stage = QueryStage<Shape>;
    const uint32_t stage = shared_address(shared) + static_cast<uint32_t>(stage_offset);
    float probability[kBlocks][4][4] = {};
    float dp[kBlocks][4][4] = {};  // dP, then dS
    gemm_abt(probability, keys, warp * Shape::kWarpRows, stage, slice * kSlice, lane);
    gemm_abt(dp, values, warp * Shape::kWarpRows, stage + Stage::kDout, slice * kSlice, lane);
#pragma unroll
    for (int column = 0; column < 4; ++column) {
      const int query = slice * kSlice + 8 * column + lane % 4 * 2;
      const unsigned char* statistics = shared + stage_offset + 4 * query;
      const float2 lse = *reinterpret_cast<const float2*>(statistics + Stage::kLse);
      const float2 delta = *reinterpret_cast<const float2*>(statistics + Stage::kDelta);
      uint2 words{};
      if constexpr (Shape::kDropout) {
        const int word = warp * Shape::kWarpRows / 32;
        words = *reinterpret_cast<const uint2*>(statistics + Stage::kMask + 4 * word * kInnerRows);
        // Key g + 8n of the warp is bit g + 8n: to the top of byte n.
        const int shift = Shape::kWarpRows == 32 ? 0 : warp % 2 * 16;
        words.x = words.x >> shift << (7 - lane / 4);
        words.y = words.y >> shift << (7 - lane / 4);
      }
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float lse_log2 = (i % 2 == 0 ? lse.x : lse.y) * kLog2E;
          float& p = probability[block][column][i];
          float& d = dp[block][column][i];
          p = exp2_approximate(p * scale - lse_log2);
          float kept_p = p;
          if constexpr (Shape::kDropout) {
            const uint32_t mask = mask_of_byte(i % 2 == 0 ? words.x : words.y, 2 * block + i / 2);
            d = masked(d, mask);
            kept_p = masked(p, mask);
          }
          d = p * (d - (i % 2 == 0 ? delta.x : delta.y));
          p = kept_p;
        }
      }
    }
    add_gradient(dvalue, probability, stage + Stage::kDout, slice, lane);
    add_gradient(dkey, dp, stage, slice, lane);
  }

  /// acc += left[keys, 32 queries] x rows of slice `slice` of `tile`.
  __device__ __forceinline__ static void add_gradient(float (&acc)[kBlocks][Shape::kColumns][4],
                                                      const float (&left)[kBlocks][4][4],
                                                      uint32_t tile, int slice, int lane) {
    uint32_t packed_left[2][kBlocks][4];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        pack_a_operand<T>(packed_left[i][block], left[block][2 * i], left[block][2 * i + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      gemm_ab<Shape>(acc, packed_left[i], tile, slice * kSlice + 16 * i, lane);
    }
  }
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    key_gradient_kernel(const __grid_constant__ AttentionBwdParams params) {
  using Stage = QueryStage<Shape>;
  constexpr int kHeadSize = Shape::kHeadSize;
  constexpr int kThreads = Shape::kThreads;
  constexpr int kRowsBytes = Shape::kRows * Shape::kRowBytes;
  extern __shared__ __align__(128) unsigned char shared[];

  const HeadOfSequence at = head_of_block<Shape::kRows>(params.batch);
  if (at.first_row >= at.length) return;
  const HeadPointers<Shape> head(params, at);
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;

  const uint32_t keys = shared_address(shared);
  const uint32_t values = keys + kRowsBytes;
  const auto stage_offset = [](int tile) { return 2 * kRowsBytes + (tile & 1) * Stage::kBytes; };
  copy_rows_async<kHeadSize, Shape::kRows, kThreads>(keys, head.key, head.qkv_stride, at.first_row,
                                                     at.length, head.head_size);
  copy_rows_async<kHeadSize, Shape::kRows, kThreads>(values, head.value, head.qkv_stride,
                                                     at.first_row, at.length, head.head_size);
  copy_stage_async<Shape>(keys + stage_offset(0), params, head, at, 0);

  const bool active = at.first_row + warp * Shape::kWarpRows < at.length;
  const float scale = params.scale * kLog2E;
  KeyGradient<Shape> gradient;
  const int tiles = (at.length + kInnerRows - 1) / kInnerRows;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    cp_async_wait_all();
    __syncthreads();  // the tile has arrived, and no thread reads the previous one any more
    if (tile + 1 < tiles) {
      copy_stage_async<Shape>(keys + stage_offset(tile + 1), params, head, at,
                              (tile + 1) * kInnerRows);
    }
    if (!active) continue;
    const int slices = at.length - tile * kInnerRows > kSlice ? kSlices : 1;
#pragma unroll 1
    for (int slice = 0; slice < slices; ++slice) {
      gradient.process_queries(shared, keys, values, stage_offset(tile), slice, warp, lane, scale);
    }
  }
  if (!active) return;

  const float key_factor = params.scale / params.dropout.keep;
  const float value_factor = 1.0f / params.dropout.keep;
  store_rows<Shape>(shared, warp, lane, gradient.dkey, {key_factor, key_factor}, head.dkey,
                    head.qkv_stride, at.first_row, at.length, head.head_size);
  store_rows<Shape>(shared + kRowsBytes, warp, lane, gradient.dvalue, {value_factor, value_factor},
                    head.dvalue, head.qkv_stride, at.first_row, at.length, head.head_size);
}

}  // namespace

template <int kHeadSize, int kTiles>
struct KeyPlan {
  static constexpr int kBlocks = kHeadSize <= 64 ? 2 : 1;
  static constexpr int kWarps = kTiles == 2 ? 2 : 4;
  static constexpr int kResident = 8 / kWarps;
};

void launch_mma_key_gradient(const AttentionLaunch& launch, AttentionBwdParams params) {
  dispatch_mma<KeyPlan>(launch, params, [&]<class Shape>(Shape shape) {
    launch_mma(key_gradient_kernel<Shape>, shape, kKeySharedBytes<Shape>, launch, params);
  });
}

}  // namespace bertha

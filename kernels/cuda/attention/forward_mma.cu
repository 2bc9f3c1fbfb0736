// Attention forward on tensor cores, mma.sync.m16n8k16: one thread block per (64 queries, head,
// sequence); it walks over tiles of 64 keys with an online softmax and draws the dropout bits.
//
// Floors    BERT-large, 96 Wikipedia sequences, T = 24,576: 38.7 GFLOP, 4 x 50.3 MB. mma.sync
//           reaches some 60 % of the rate of wgmma, hence about 80 us for whole tiles; bytes 47 us.
// Limits    nothing alone: tensor cores, exp, softmax and random bits take 250 to 400 clocks each
//           per 64x64 tile and SM; half of the issue slots are in use, most stalls are
//           fixed latencies.
// Measured  microseconds, median of 30, NVIDIA H200, bf16, 16 heads x 64, 2026-11-21; in brackets
//           PyTorch 2.11's variable-length FlashAttention-2 on the same machine and lengths:
//             lengths                       no dropout    dropout 0.1
//             Wikipedia, 96, T = 24,580     165 (220)     227 (253)
//             48 x 512                      191 (207)     265 (268)
//             192 x 128                      77  (91)      91 (111)
// Tried     32 queries a warp in 8 warps of 255 registers: 10 to 31 us more, but at 48 x 512
//           without dropout 2 less. 12 warps of 168 registers: 5 to 13 more. Thread blocks of 128 queries:
//           7 to 9 more where sequences are long. Unrolled key tiles save 2 to 6 us at 192 x 128
//           and nothing for buckets of 256. Drawing, storing and using the random bits is what lies
//           between the columns; a kernel of their own beside the product before could hide most.

#include "kernels/cuda/attention/dropout.cuh"
#include "kernels/cuda/attention/launch.cuh"

namespace bertha {
namespace {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;
constexpr float kInfinity = __builtin_huge_valf();

// The reference of exp2(score - reference) follows the running maximum only when that has grown by
// so much: probabilities up to 2^8 lose nothing in any dtype, and the sums are seldom rescaled.
constexpr float kReferenceSlack = 8.0f;

template <class Shape>
constexpr int kSharedBytes = (Shape::kRows + 4 * kWalk) * Shape::kRowBytes;

/// Draws the decisions of the warp's rows for the 64 keys of a tile, and stores them: a word a
/// lane.
template <class Shape>
struct MaskDraw {
  static_assert(Shape::kWarpRows == 16 && kWalk == 64);
  uint64_t seed = 0;
  uint64_t step = 0;
  const AttentionDropout& dropout;
  uint32_t* words;     // from this lane's of the first tile on
  int64_t first_word;  // the same as an index
  int live_words = 0;  // that hold keys of the sequence, counted like `words`
  int tile = 0;
  WarpMask mask;

  __device__ __forceinline__ MaskDraw(const AttentionFwdParams& params, const HeadOfSequence& at,
                                      int warp, int lane)
      : dropout(params.dropout) {
    const int row = at.first_row + warp * Shape::kWarpRows + WarpMask::row_of(lane);
    first_word = ((at.begin + row) * params.batch.heads + at.head) * params.batch.mask_words +
                 WarpMask::word_of(lane);
    words = params.mask + first_word;
    if (row < at.length) live_words = (at.length + 31) / 32 - WarpMask::word_of(lane);
    if constexpr (Shape::kDropout) {
      seed = dropout.random[0];
      step = dropout.random[1];
    }
  }

  __device__ __forceinline__ void start() {
    mask.word = drawn_word(SeedKeys{seed}, step, first_word + 2 * tile, dropout);
  }
  __device__ __forceinline__ WarpMask finish() {
    if (2 * tile < live_words) words[2 * tile] = mask.word;
    return mask;
  }
};

/// A warp's queries: its state while it walks over the keys.
template <class Shape>
struct Queries {
  using T = typename Shape::T;
  static constexpr int kBlocks = Shape::kBlocks;

  uint32_t query[kBlocks][Shape::kSteps][4];
  float sum[kBlocks][Shape::kColumns][4];  // of exp2(score - reference) * kept * value
  float reference[kBlocks][2];             // in units of log2
  float total[kBlocks][2];                 // of exp2(score - reference), this lane's columns

  __device__ __forceinline__ void start(uint32_t tile, int warp, int lane) {
    const auto offset = rows_first<Shape::kHeadSize>(lane);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int step = 0; step < Shape::kSteps; ++step) {
        load_matrices(query[block][step],
                      offset.at(tile, warp * Shape::kWarpRows + block * 16, step));
      }
#pragma unroll
      for (int column = 0; column < Shape::kColumns; ++column) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[block][column][i] = 0.0f;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        reference[block][half] = -kInfinity;
        total[block][half] = 0.0f;
      }
    }
  }

  /// Moves the references up to the maxima of the new scores where these have outgrown them.
  __device__ __forceinline__ void follow(const float (&score)[kBlocks][8][4], float scale) {
    float top[kBlocks][2];
    bool outgrown = false;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = score[block][0][2 * half];
#pragma unroll
        for (int column = 0; column < 8; ++column) {
          largest = fmaxf(
              largest, fmaxf(score[block][column][2 * half], score[block][column][2 * half + 1]));
        }
        largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 2));
        top[block][half] = largest * scale;
        outgrown |= top[block][half] > reference[block][half] + kReferenceSlack;
      }
    }
    if (!__any_sync(kFullWarp, outgrown)) return;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float raised = fmaxf(reference[block][half], top[block][half]);
        const float factor = exp2_approximate(reference[block][half] - raised);
        reference[block][half] = raised;
        total[block][half] *= factor;
#pragma unroll
        for (int column = 0; column < Shape::kColumns; ++column) {
          sum[block][column][2 * half] *= factor;
          sum[block][column][2 * half + 1] *= factor;
        }
      }
    }
  }

  /// One tile of keys and values. `remaining`: keys from the tile's first on; kTail: fewer than 64.
  template <bool kTail>
  __device__ __forceinline__ void walk(uint32_t keys, uint32_t values, int remaining, int lane,
                                       float scale, MaskDraw<Shape>& draw) {
    constexpr int kHeadSize = Shape::kHeadSize;
    const int live = kTail ? (remaining + 15) / 16 : 4;  // blocks of 16 keys
    float score[kBlocks][8][4] = {};
    const auto by_columns = columns_first<kHeadSize>(lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (kTail && i >= live) continue;
#pragma unroll
      for (int step = 0; step < Shape::kSteps; ++step) {
        uint32_t key[4];
        load_matrices(key, by_columns.at(keys, 16 * i, step));
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          multiply_add<T>(score[block][2 * i], query[block][step], key[0], key[1]);
          multiply_add<T>(score[block][2 * i + 1], query[block][step], key[2], key[3]);
        }
      }
    }
    if constexpr (Shape::kDropout) draw.start();
    if (kTail) {
#pragma unroll
      for (int column = 0; column < 8; ++column) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (8 * column + lane % 4 * 2 + i % 2 < remaining) continue;
#pragma unroll
          for (int block = 0; block < kBlocks; ++block) score[block][column][i] = -kInfinity;
        }
      }
    }
    follow(score, scale);
    WarpMask mask;
    if constexpr (Shape::kDropout) mask = draw.finish();
    const auto by_rows = rows_first<kHeadSize>(lane);
    // Each 16 keys from exp to product: the products of one fill the time of the next one's exp.
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (kTail && i >= live) continue;
      uint32_t probability[kBlocks][4];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int column = 2 * i; column < 2 * i + 2; ++column) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            float& value = score[block][column][j];
            value = exp2_approximate(value * scale - reference[block][j / 2]);
            total[block][j / 2] += value;
          }
        }
        as_left_operand<T>(probability[block], score[block][2 * i], score[block][2 * i + 1]);
        if constexpr (Shape::kDropout) drop(probability[block], block, i, lane, mask);
      }
#pragma unroll
      for (int step = 0; step < Shape::kSteps; ++step) {
        uint32_t value[4];
        load_transposed(value, by_rows.at(values, 16 * i, step));
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          multiply_add<T>(sum[block][2 * step], probability[block], value[0], value[1]);
          multiply_add<T>(sum[block][2 * step + 1], probability[block], value[2], value[3]);
        }
      }
    }
  }

  /// Zeroes the dropped probabilities of key block i of 16. Columns 2c, 2c + 1 of 8 keys n are bits
  /// 8n + 2c and 8n + 2c + 1: shifted so that they top byte n, they become masks with one
  /// instruction.
  __device__ __forceinline__ void drop(uint32_t (&probability)[4], int block, int i, int lane,
                                       const WarpMask& mask) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t word = mask.of(block * 16 + half * 8 + lane / 4, i / 2);
      const uint32_t even = word << (7 - lane % 4 * 2);
      const uint32_t odd = word << (6 - lane % 4 * 2);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        probability[half + 2 * n] &= masks_of_byte(even, odd, i % 2 * 2 + n);
      }
    }
  }
};

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident)
    forward_kernel(const __grid_constant__ AttentionFwdParams params) {
  using T = typename Shape::T;
  constexpr int kHeadSize = Shape::kHeadSize;
  extern __shared__ __align__(128) unsigned char shared[];

  const HeadOfSequence at = head_of_block<Shape::kRows>(params.batch);
  if (at.first_row >= at.length) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int heads = params.batch.heads;
  const int stride = 3 * heads * kHeadSize;
  const T* query_rows = static_cast<const T*>(params.qkv) + at.begin * stride + at.head * kHeadSize;
  const T* key_rows = query_rows + heads * kHeadSize;
  const T* value_rows = key_rows + heads * kHeadSize;

  const uint32_t query_tile = shared_address(shared);
  constexpr uint32_t kTileBytes = kWalk * Shape::kRowBytes;
  const auto keys = [&](int tile) {
    return query_tile + Shape::kRows * Shape::kRowBytes + (tile & 1) * 2 * kTileBytes;
  };
  const auto values = [&](int tile) { return keys(tile) + kTileBytes; };
  const auto copy_tile = [&](int tile) {
    copy_rows_async<kHeadSize, kWalk, Shape::kThreads>(keys(tile), key_rows, stride, tile * kWalk,
                                                       at.length);
    copy_rows_async<kHeadSize, kWalk, Shape::kThreads>(values(tile), value_rows, stride,
                                                       tile * kWalk, at.length);
  };
  copy_rows_async<kHeadSize, Shape::kRows, Shape::kThreads>(query_tile, query_rows, stride,
                                                            at.first_row, at.length);
  copy_tile(0);

  const bool active = at.first_row + warp * Shape::kWarpRows < at.length;
  MaskDraw<Shape> draw(params, at, warp, lane);
  const float scale = params.scale * kLog2E;
  Queries<Shape> queries;
  const int tiles = (at.length + kWalk - 1) / kWalk;
  const auto visit = [&](int tile) {
    wait_for_copies();
    __syncthreads();  // the tile is there, and nobody reads the one before it any more
    if (tile + 1 < tiles) copy_tile(tile + 1);
    if (!active) return;
    if (tile == 0) queries.start(query_tile, warp, lane);
    draw.tile = tile;
    const int remaining = at.length - tile * kWalk;
    if (remaining >= kWalk) {
      queries.template walk<false>(keys(tile), values(tile), remaining, lane, scale, draw);
    } else {
      queries.template walk<true>(keys(tile), values(tile), remaining, lane, scale, draw);
    }
  };
  if constexpr (Shape::kWalkTiles > 0) {
#pragma unroll
    for (int tile = 0; tile < Shape::kWalkTiles; ++tile) {
      if (tile < tiles) visit(tile);
    }
  } else {
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) visit(tile);
  }
  if (!active) return;

  float factor[Shape::kBlocks][2];
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float total = queries.total[block][half];
      total += __shfl_xor_sync(kFullWarp, total, 1);
      total += __shfl_xor_sync(kFullWarp, total, 2);
      factor[block][half] = 1.0f / (total * params.dropout.keep);
      const int row = at.first_row + warp * Shape::kWarpRows + block * 16 + half * 8 + lane / 4;
      if (lane % 4 == 0 && row < at.length) {
        params.lse[at.head * params.batch.tokens + at.begin + row] =
            (queries.reference[block][half] + log2f(total)) * kLn2;
      }
    }
  }
  store_rows<Shape>(shared, warp, lane, queries.sum, factor,
                    static_cast<T*>(params.out) + at.begin * (stride / 3) + at.head * kHeadSize,
                    stride / 3, at.first_row, at.length);
}

}  // namespace

// 16 queries a warp: the shared-memory reads of 32 would be half as many, but 16 warps with 128
// registers hide more than 8 with 255 (table above). 128 columns need the registers.
template <int kHeadSize, int kTiles>
struct ForwardPlan {
  static constexpr int kBlocks = 1;
  static constexpr int kWarps = 4;
  static constexpr int kResident = kHeadSize <= 64 ? 4 : 2;
  static constexpr int kWalkTiles = kTiles;
};

void launch_mma_forward(const AttentionLaunch& launch, AttentionFwdParams params) {
  dispatch_mma<ForwardPlan>(launch, params, [&](auto shape) {
    using Shape = decltype(shape);
    launch_mma(forward_kernel<Shape>, Shape{}, kSharedBytes<Shape>, launch, params);
  });
}

}  // namespace bertha

// Attention forward on mma.sync.m16n8k16: a block per (64 queries, head, sequence) loops over tiles
// of 64 keys, two stages of cp.async, with an online softmax, and draws the dropout bits. 16
// queries a warp: ldmatrix traffic would be half as much with 32, but 16 warps of 128 registers per
// SM hide more latency than 8 of 255; 128 columns need the registers.
//
// Bound by  no unit alone: tensor cores, exponentials, softmax and random bits take 250 to 400
//           clocks each for a 64 x 64 tile; half of the issue slots are in use.
// Figure    BERT-large, 96 Wikipedia sequences, dropout 0.1, one H200: 204 us. Variants:
//           kernels/measured/attention.md.

#include "kernels/base/cuda/dropout.cuh"
#include "kernels/cuda/attention/launch.cuh"

namespace bertha {
namespace {

// The reference of P = exp2(score - reference) follows the running maximum only when that has grown
// by this much: P up to 2^8 loses nothing in any dtype, and O is seldom rescaled.
constexpr float kReferenceSlack = 8.0f;

template <class Shape>
constexpr int kSharedBytes = (Shape::kRows + 4 * kInnerRows) * Shape::kRowBytes;

/// Draws and stores the dropout bits of the warp's rows for the 64 keys of a tile, 32 bits a lane.
template <class Shape>
struct DropoutMask {
  static_assert(Shape::kWarpRows == 16 && kInnerRows == 64);
  uint64_t seed = 0;
  uint64_t step = 0;
  const AttentionDropout& dropout;
  uint32_t* words;     // from this lane's of the first tile on
  int64_t first_word;  // the same as an index
  int live_words = 0;  // words with keys of the sequence, counted like `words`
  int tile = 0;
  uint32_t word = 0;  // lane r + 16 w: word w of the warp's row r

  __device__ __forceinline__ DropoutMask(const AttentionFwdParams& params, const HeadOfSequence& at,
                                         int warp, int lane)
      : dropout(params.dropout) {
    const int row = at.first_row + warp * Shape::kWarpRows + (lane & 15);
    const int word_of_row = lane >> 4;
    first_word =
        ((at.begin + row) * params.batch.heads + at.head) * params.batch.mask_words + word_of_row;
    words = params.mask + first_word;
    if (row < at.length) live_words = (at.length + 31) / 32 - word_of_row;
    if constexpr (Shape::kDropout) {
      seed = dropout.random[0];
      step = dropout.random[1];
    }
  }

  __device__ __forceinline__ void draw() {
    word = drawn_bits(SeedKeys{seed}, step, dropout.site, first_word + 2 * tile,
                      [this](int digit) { return dropout.digits[digit]; });
  }
  __device__ __forceinline__ void store() const {
    if (2 * tile < live_words) words[2 * tile] = word;
  }
  /// Word `which` (0, 1) of row `row`. All lanes call it.
  __device__ __forceinline__ uint32_t of(int row, int which) const {
    return __shfl_sync(kFullWarp, word, row + 16 * which);
  }
};

/// A warp's 16 queries, with accumulators and softmax state.
template <class Shape>
struct QueryRows {
  using T = typename Shape::T;

  uint32_t q[Shape::kSteps][4];
  float acc_o[Shape::kColumns][4];  // sums of exp2(score - reference) * kept * value
  float reference[2];               // in units of log2
  float row_sum[2];                 // sums of exp2(score - reference) over this lane's columns

  __device__ __forceinline__ void load_q(uint32_t tile, int warp, int lane) {
    const auto offset = rows_first<Shape::kHeadSize>(lane);
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      ldmatrix_x4(q[step], offset.at(tile, warp * Shape::kWarpRows, step));
    }
#pragma unroll
    for (int column = 0; column < Shape::kColumns; ++column) {
#pragma unroll
      for (int i = 0; i < 4; ++i) acc_o[column][i] = 0.0f;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      reference[half] = -kInfinity;
      row_sum[half] = 0.0f;
    }
  }

  /// Raises the references to the maxima of the new scores if these are larger.
  __device__ __forceinline__ void rescale(const float (&score)[8][4], float scale) {
    float top[2];
    bool outgrown = false;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = score[0][2 * half];
#pragma unroll
      for (int column = 0; column < 8; ++column) {
        largest = fmaxf(largest, fmaxf(score[column][2 * half], score[column][2 * half + 1]));
      }
      largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, 2));
      top[half] = largest * scale;
      outgrown |= top[half] > reference[half] + kReferenceSlack;
    }
    if (!__any_sync(kFullWarp, outgrown)) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float raised = fmaxf(reference[half], top[half]);
      const float factor = exp2_approximate(reference[half] - raised);
      reference[half] = raised;
      row_sum[half] *= factor;
#pragma unroll
      for (int column = 0; column < Shape::kColumns; ++column) {
        acc_o[column][2 * half] *= factor;
        acc_o[column][2 * half + 1] *= factor;
      }
    }
  }

  /// One tile of keys and values. `remaining`: keys from the tile's first on; kTail: fewer than 64.
  template <bool kTail>
  __device__ __forceinline__ void process_key_tile(uint32_t keys, uint32_t values, int remaining,
                                                   int lane, float scale,
                                                   DropoutMask<Shape>& dropout) {
    constexpr int kHeadSize = Shape::kHeadSize;
    const int live = kTail ? (remaining + 15) / 16 : 4;  // blocks of 16 keys
    float score[8][4] = {};
    const auto by_columns = columns_first<kHeadSize>(lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (kTail && i >= live) continue;
#pragma unroll
      for (int step = 0; step < Shape::kSteps; ++step) {
        uint32_t key[4];
        ldmatrix_x4(key, by_columns.at(keys, 16 * i, step));
        mma_column_pair<T>(score, i, q[step], key);
      }
    }
    if constexpr (Shape::kDropout) dropout.draw();
    if (kTail) {
#pragma unroll
      for (int column = 0; column < 8; ++column) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (8 * column + lane % 4 * 2 + i % 2 >= remaining) score[column][i] = -kInfinity;
        }
      }
    }
    rescale(score, scale);
    if constexpr (Shape::kDropout) dropout.store();
      // 16 keys at a time from exp to mma, so that the mma of one overlap the exp of the next.
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (kTail && i >= live) continue;
      uint32_t probability[4];
#pragma unroll
      for (int column = 2 * i; column < 2 * i + 2; ++column) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float& value = score[column][j];
          value = exp2_approximate(value * scale - reference[j / 2]);
          row_sum[j / 2] += value;
        }
      }
      pack_a_operand<T>(probability, score[2 * i], score[2 * i + 1]);
      if constexpr (Shape::kDropout) apply_dropout(probability, i, lane, dropout);
      gemm_ab<Shape>(acc_o, probability, values, 16 * i, lane);
    }
  }

  /// Zeroes the dropped probabilities of key block i of 16. Columns 2c, 2c + 1 of 8 keys n are bits
  /// 8n + 2c and 8n + 2c + 1: shifted so that they top byte n, they become masks with one
  /// instruction.
  __device__ __forceinline__ void apply_dropout(uint32_t (&probability)[4], int i, int lane,
                                                const DropoutMask<Shape>& mask) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t word = mask.of(half * 8 + lane / 4, i / 2);
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
  const int head_size = params.batch.head_size;
  const int stride = 3 * heads * head_size;
  const T* query_rows = static_cast<const T*>(params.qkv) + at.begin * stride + at.head * head_size;
  const T* key_rows = query_rows + heads * head_size;
  const T* value_rows = key_rows + heads * head_size;

  const uint32_t query_tile = shared_address(shared);
  constexpr uint32_t kTileBytes = kInnerRows * Shape::kRowBytes;
  const auto keys = [&](int tile) {
    return query_tile + Shape::kRows * Shape::kRowBytes + (tile & 1) * 2 * kTileBytes;
  };
  const auto values = [&](int tile) { return keys(tile) + kTileBytes; };
  const auto copy_tile = [&](int tile) {
    copy_rows_async<kHeadSize, kInnerRows, Shape::kThreads>(
        keys(tile), key_rows, stride, tile * kInnerRows, at.length, head_size);
    copy_rows_async<kHeadSize, kInnerRows, Shape::kThreads>(
        values(tile), value_rows, stride, tile * kInnerRows, at.length, head_size);
  };
  copy_rows_async<kHeadSize, Shape::kRows, Shape::kThreads>(query_tile, query_rows, stride,
                                                            at.first_row, at.length, head_size);
  copy_tile(0);

  const bool active = at.first_row + warp * Shape::kWarpRows < at.length;
  DropoutMask<Shape> dropout(params, at, warp, lane);
  const float scale = params.scale * kLog2E;
  QueryRows<Shape> queries;
  const int tiles = (at.length + kInnerRows - 1) / kInnerRows;
  const auto visit = [&](int tile) {
    cp_async_wait_all();
    __syncthreads();  // the tile has arrived, and no thread reads the previous one any more
    if (tile + 1 < tiles) copy_tile(tile + 1);
    if (!active) return;
    if (tile == 0) queries.load_q(query_tile, warp, lane);
    dropout.tile = tile;
    const int remaining = at.length - tile * kInnerRows;
    if (remaining >= kInnerRows) {
      queries.template process_key_tile<false>(keys(tile), values(tile), remaining, lane, scale,
                                               dropout);
    } else {
      queries.template process_key_tile<true>(keys(tile), values(tile), remaining, lane, scale,
                                              dropout);
    }
  };
  if constexpr (Shape::kUnrolledTiles > 0) {
#pragma unroll
    for (int tile = 0; tile < Shape::kUnrolledTiles; ++tile) {
      if (tile < tiles) visit(tile);
    }
  } else {
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) visit(tile);
  }
  if (!active) return;

  float factor[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float total = queries.row_sum[half];
    total += __shfl_xor_sync(kFullWarp, total, 1);
    total += __shfl_xor_sync(kFullWarp, total, 2);
    factor[half] = 1.0f / (total * params.dropout.keep);
    const int row = at.first_row + warp * Shape::kWarpRows + half * 8 + lane / 4;
    if (lane % 4 == 0 && row < at.length) {
      params.lse[at.head * params.batch.tokens + at.begin + row] =
          (queries.reference[half] + log2f(total)) * kLn2;
    }
  }
  store_rows<Shape>(shared, warp, lane, &queries.acc_o, factor,
                    static_cast<T*>(params.out) + at.begin * (stride / 3) + at.head * head_size,
                    stride / 3, at.first_row, at.length, head_size);
}

}  // namespace

template <int kHeadSize, int kTiles>
struct ForwardPlan {
  static constexpr int kBlocks = 1;
  static constexpr int kWarps = 4;
  static constexpr int kResident = kHeadSize <= 64 ? 4 : 2;
  static constexpr int kUnrolledTiles = kTiles;
};

void launch_mma_forward(const AttentionLaunch& launch, AttentionFwdParams params) {
  dispatch_mma<ForwardPlan>(launch, params, [&]<class Shape>(Shape shape) {
    launch_mma(forward_kernel<Shape>, shape, kSharedBytes<Shape>, launch, params);
  });
}

}  // namespace bertha

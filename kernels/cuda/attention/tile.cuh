#pragma once

#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/attention/sequence_tiles.h"
#include "kernels/cuda/tensor_core/mma.cuh"

namespace bertha {

inline constexpr float kLn2 = 0.6931471805599453f;
inline constexpr float kInfinity = __builtin_huge_valf();

/// Shape of a mma.sync kernel for heads of up to kHeadSize columns: each warp owns 16 * kBlocks
/// rows (queries, or keys in the kernel of dK and dV), and the block loops over tiles of 64 rows of
/// the other kind. Plan: kBlocks, kWarps and kResident (blocks per SM) for a head size and length
/// bucket.
template <class T_, int kHeadSize_, class Plan, bool kDropout_>
struct MmaShape : Plan {
  using T = T_;
  static constexpr int kHeadSize = kHeadSize_;
  static constexpr bool kDropout = kDropout_;
  static constexpr int kWarpRows = 16 * Plan::kBlocks;
  static constexpr int kRows = Plan::kWarps * kWarpRows;
  static constexpr int kThreads = Plan::kWarps * kWarpThreads;
  static constexpr int kSteps = kHeadSize / 16;   // mma steps along the head
  static constexpr int kColumns = kHeadSize / 8;  // accumulators along the head
  static constexpr int kChunks = kHeadSize / 8;   // 16-byte chunks of a row
  static constexpr int kRowBytes = 2 * kHeadSize;
};

inline constexpr int kInnerRows = 64;  // rows of the tiles that a block loops over

/// Byte offset of a 16-byte chunk in a tile of 16-bit rows. Chunks are swizzled so that eight
/// rows of one chunk, as read by ldmatrix, are in different banks.
template <int kHeadSize>
__device__ __forceinline__ uint32_t chunk_offset(int row, int chunk) {
  const int swizzle = kHeadSize == 32 ? (row >> 1) & 3 : row & 7;
  return static_cast<uint32_t>(row * 2 * kHeadSize + ((chunk ^ swizzle) << 4));
}

/// Where this lane's row of an ldmatrix starts, for tiles whose first row is a multiple of 16.
template <int kHeadSize>
struct LaneOffset {
  uint32_t row;
  uint32_t chunk;

  __device__ __forceinline__ LaneOffset(int lane_row, int lane_chunk) {
    const uint32_t all = chunk_offset<kHeadSize>(lane_row, lane_chunk);
    row = static_cast<uint32_t>(lane_row * 2 * kHeadSize);
    chunk = all - row;
  }
  /// Rows from `first_row`, columns from 16 * step of the tile at `tile`.
  __device__ __forceinline__ uint32_t at(uint32_t tile, int first_row, int step) const {
    return tile + row + static_cast<uint32_t>(first_row * 2 * kHeadSize) +
           (chunk ^ static_cast<uint32_t>(step << 5));
  }
};

/// Left operand [16 rows, 16 columns]; transposed: right operands of two column blocks of 8 whose
/// inner index are the tile's rows.
template <int kHeadSize>
__device__ __forceinline__ LaneOffset<kHeadSize> rows_first(int lane) {
  return LaneOffset<kHeadSize>(lane & 15, lane >> 4);
}
/// Right operands of two blocks of 8 tile rows whose inner index are the tile's columns.
template <int kHeadSize>
__device__ __forceinline__ LaneOffset<kHeadSize> columns_first(int lane) {
  return LaneOffset<kHeadSize>((lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1);
}

/// acc[2 pair] and [2 pair + 1] += left x the two blocks of 8 columns in `right`.
template <class T, int kColumns>
__device__ __forceinline__ void mma_column_pair(float (&acc)[kColumns][4], int pair,
                                                const uint32_t (&left)[4],
                                                const uint32_t (&right)[4]) {
  mma_m16n8k16<T>(acc[2 * pair], left, right[0], right[1]);
  mma_m16n8k16<T>(acc[2 * pair + 1], left, right[2], right[3]);
}
/// The same of several blocks of 16 rows.
template <class T, int kBlocks, int kColumns>
__device__ __forceinline__ void mma_column_pair(float (&acc)[kBlocks][kColumns][4], int pair,
                                                const uint32_t (&left)[kBlocks][4],
                                                const uint32_t (&right)[4]) {
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    mma_column_pair<T>(acc[block], pair, left[block], right);
  }
}

/// acc += left x rows [first_row, first_row + 16) of `tile`; acc and left of one block or several.
template <class Shape, class Accumulators, class Left>
__device__ __forceinline__ void gemm_ab(Accumulators& acc, const Left& left, uint32_t tile,
                                        int first_row, int lane) {
  const auto by_rows = rows_first<Shape::kHeadSize>(lane);
#pragma unroll
  for (int step = 0; step < Shape::kSteps; ++step) {
    uint32_t right[4];
    ldmatrix_x4_trans(right, by_rows.at(tile, first_row, step));
    mma_column_pair<typename Shape::T>(acc, step, left, right);
  }
}

/// One head of one sequence, as a thread block sees it.
struct HeadOfSequence {
  int64_t begin;  // token
  int length;     // tokens
  int head;
  int first_row;  // first row of this thread block in the sequence
};

/// The sequence that has a tile of sequence_tiles.h. All lanes call it: they compare 32 sequences
/// at once.
template <int kRows>
__device__ __forceinline__ int seq_of_tile(const AttentionBatch& batch, int64_t tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  int first = 0;
  int count = batch.seqs;  // from `first` on, among which it is
  while (count > 1) {
    const int step = (count + kWarpThreads - 1) / kWarpThreads;
    const int seq = first + lane * step;
    const bool begins =
        lane * step < count && first_tile_of_seq(seq, batch.cu_seqlens[seq], kRows) <= tile;
    const int before = (__popc(__ballot_sync(kFullWarp, begins)) - 1) * step;
    first += before;
    count = min(step, count - before);
  }
  return first;
}

template <int kRows>
__device__ __forceinline__ HeadOfSequence head_of_block(const AttentionBatch& batch) {
  const unsigned heads = static_cast<unsigned>(batch.heads);
  if (batch.tiles_per_head == 0) {
    const int64_t tile = blockIdx.x / heads;
    const int seq = seq_of_tile<kRows>(batch, tile);
    const int begin = batch.cu_seqlens[seq];
    const int own_tile = static_cast<int>(tile - first_tile_of_seq(seq, begin, kRows));
    return {begin, batch.cu_seqlens[seq + 1] - begin, static_cast<int>(blockIdx.x % heads),
            own_tile * kRows};
  }
  const unsigned tiles = static_cast<unsigned>(batch.tiles_per_head);
  const unsigned tile = blockIdx.x % tiles;
  const unsigned rest = blockIdx.x / tiles;
  const int64_t seq = batch.first_seq + static_cast<int64_t>(rest / heads);
  const int begin = batch.cu_seqlens[seq];
  return {begin, batch.cu_seqlens[seq + 1] - begin, static_cast<int>(rest % heads),
          static_cast<int>(tile) * kRows};
}

/// Starts copying rows [first, first + kTileRows) to a tile, zeros past `length` and past the
/// columns of a head that is narrower than the tile. Offsets inside one sequence fit into 32 bits,
/// which run_groups checks: that leaves registers to the accumulators.
template <int kHeadSize, int kTileRows, int kThreads, class T>
__device__ __forceinline__ void copy_rows_async(uint32_t tile, const T* rows, int stride, int first,
                                                int length, int head_size) {
  constexpr int kChunks = kHeadSize / 8;
  constexpr int kRowsPerPass = kThreads / kChunks;
  static_assert(kTileRows % kRowsPerPass == 0 && kRowsPerPass % 8 == 0);
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const int row = static_cast<int>(threadIdx.x) / kChunks;
  const uint32_t to = tile + chunk_offset<kHeadSize>(row, chunk);
#pragma unroll
  for (int pass = 0; pass < kTileRows / kRowsPerPass; ++pass) {
    const int from = first + row + pass * kRowsPerPass;
    const bool valid = from < length && chunk * 8 < head_size;
    const int offset = (valid ? from : 0) * stride + chunk * 8;
    cp_async_16(to + pass * kRowsPerPass * 2 * kHeadSize, rows + offset, valid);
  }
}

/// Writes a warp's accumulators, with half h of each block multiplied by factor[h], to the columns
/// of the head in the rows of global memory below `length`, through the warp's own rows of a
/// shared-memory tile that is not read any more. sums: [Shape::kBlocks].
template <class Shape>
__device__ __forceinline__ void store_rows(unsigned char* tile, int warp, int lane,
                                           const float (*sums)[Shape::kColumns][4],
                                           const float (&factor)[2], typename Shape::T* rows,
                                           int stride, int first, int length, int head_size) {
  using T = typename Shape::T;
  constexpr int kHeadSize = Shape::kHeadSize;
  unsigned char* own = tile + warp * Shape::kWarpRows * Shape::kRowBytes;
  __syncwarp();
#pragma unroll
  for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = block * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int column = 0; column < Shape::kColumns; ++column) {
        const float* pair = &sums[block][column][2 * half];
        *reinterpret_cast<uint32_t*>(own + chunk_offset<kHeadSize>(row, column) + lane % 4 * 4) =
            packed<T>(pair[0] * factor[half], pair[1] * factor[half]);
      }
    }
  }
  __syncwarp();
#pragma unroll
  for (int at = lane; at < Shape::kWarpRows * Shape::kChunks; at += kWarpThreads) {
    const int row = at / Shape::kChunks;
    const int chunk = at % Shape::kChunks;
    const int target = first + warp * Shape::kWarpRows + row;
    if (target < length && chunk * 8 < head_size) {
      *reinterpret_cast<uint4*>(rows + (target * stride + chunk * 8)) =
          *reinterpret_cast<const uint4*>(own + chunk_offset<kHeadSize>(row, chunk));
    }
  }
}

}  // namespace bertha

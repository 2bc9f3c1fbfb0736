#pragma once

// Shared by the warp roles of persistent_backward.cu: thread block, shared memory, mbarriers. Those
// named "full" complete with a TMA load, those named "empty" with the arrivals of all consumer
// threads: one arrival per warp is as fast, but racecheck of compute-sanitizer does not see its
// order.
//   keys_full, values_full, keys_empty   of a key block, one for each warpgroup
//   values_empty                         V is in registers: K of the next block may overwrite it
//   stage_full, stage_empty              Q, dO, mask words of a query tile
//   item_full, item_empty                an item and its statistics, double-buffered
//   statistics_full                      the statistics of one tile; 4 groups of 16 rows arrive
//   dq_added[warpgroup][warp]            the warp has added to its rows of dQ of a tile; the same
//                                        warp of the other warpgroup waits for it, so that 0 is
//                                        ahead of 1 by one tile at most and never behind
//   kWarpgroupBarrier + warpgroup        (bar.sync) dS of a tile is free; dS of a tile is stored
//   kConsumersBarrier                    (bar.sync) all that is rounded to fp8 is recorded

#include "kernels/base/cuda/barrier.cuh"
#include "kernels/base/cuda/fp8.cuh"
#include "kernels/cuda/attention/kernels.h"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/attention/work_list.cuh"
#include "kernels/cuda/tensor_core/wgmma.cuh"

namespace bertha::backward {

inline constexpr int kHeadSize = 64;  // columns of tiles: zeros beyond narrower heads
inline constexpr int kMaxTiles = 8;   // tiles of kTileRows queries or keys per sequence
inline constexpr int kRowBytes = 2 * kHeadSize;
inline constexpr int kTileBytes = kTileRows * kRowBytes;
inline constexpr int kSteps = kHeadSize / 16;  // of a GEMM over 64 inner indices
inline constexpr int kWarpRows = 16;           // rows of a warp's accumulator

inline constexpr int kParts = 3;  // of dqkv: dQ, dK, dV

inline constexpr int kConsumers = 2;  // warpgroups, a key tile each
static_assert(kConsumers == kColumnSumsOfSeq && kMaxTiles == kColumnSumsOfSplitSeq);
static_assert(kMaxTiles == kConsumers * kMaxKeyParts);
inline constexpr int kWarps = 4;  // per warpgroup
inline constexpr int kThreads = kWarpgroupThreads * (kConsumers + 1);
inline constexpr int kStages = 2;     // tiles of queries in shared memory
inline constexpr int kItemSlots = 2;  // items whose statistics are there
inline constexpr int kMaskWords = 4;  // per query and block of keys
inline constexpr int kMaskBytes = kTileRows * kMaskWords * 4;

// A statistics warp takes 16 rows at a time: 4 rows a load, 4 loads in flight.
inline constexpr int kStatisticsWarps = 3;
inline constexpr int kGroupRows = 16;
inline constexpr int kGroupsOfTile = kTileRows / kGroupRows;

// Queries of a tile that are a consumer lane's columns: 8 n + 2 (lane % 4), and the next.
inline constexpr int kLaneQueries = 16;

/// Index of the statistics of query `row` of a sequence. Each group of 16 rows stores four values
/// for each of four lanes, so that neither stores nor loads have bank conflicts.
__device__ __forceinline__ int statistics_index(int row) {
  return row / 16 * 16 + row % 8 / 2 * 4 + row % 16 / 8 * 2 + row % 2;
}

/// What the consumers of a block round to fp8 with, and what they record.
struct RoundingOfBlock {
  float scale;
  uint32_t limit;       // see Fp8Rounding
  int32_t live_tokens;  // tokens from here on are padding
  Fp8Extremes extremes;
};

struct alignas(1024) SharedStorage {
  float4 dquery[kMaxTiles][kWarps][8][kWarpThreads];  // [tile][warp][8 columns][lane]
  // K and V of a key block alternate in two buffers of each warpgroup: V moves to registers at
  // once, and K of the next block overwrites it; V of the next block follows where K was.
  unsigned char keys_values[kConsumers][2][kTileBytes];
  struct {
    unsigned char query[kTileBytes];
    unsigned char dout[kTileBytes];
  } stage[kStages];
  unsigned char dscores[kConsumers][kTileBytes];  // [key][query]
  uint32_t mask[kStages][kTileRows][kMaskWords];
  // Statistics of queries, at statistics_index(). lse: in units of log2, plus log2(keep), so that
  // exp2 gives P / keep; infinity past the sequence: its probabilities are 0.
  // delta: keep * rowsum(dO * O).
  float lse[kItemSlots][kMaxTiles * kTileRows];
  float delta[kItemSlots][kMaxTiles * kTileRows];
  // Sums over the rows of dQ, dK, dV that a warp has written for the item; see column_of_lane().
  float2 column_sums[kConsumers][kParts][kWarps][kWarpThreads];
  RoundingOfBlock rounding;
  AttentionItem items[kItemSlots];
  WorkList list;
  uint64_t keys_full[kConsumers];
  uint64_t keys_empty[kConsumers];
  uint64_t values_full[kConsumers];
  uint64_t values_empty[kConsumers];
  uint64_t stage_full[kStages];
  uint64_t stage_empty[kStages];
  uint64_t item_full[kItemSlots];
  uint64_t item_empty[kItemSlots];
  uint64_t statistics_full[kItemSlots][kMaxTiles];
  uint64_t dq_added[kConsumers][kWarps];
};
constexpr int kMaxSharedBytes = 227 * 1024;  // limit of a thread block
static_assert(sizeof(SharedStorage) <= kMaxSharedBytes);

/// Goes to the kernel by value.
struct Arguments {
  CUtensorMap qkv;
  CUtensorMap dout;
  CUtensorMap mask;  // without dropout: nothing
  AttentionBwdParams params;
  Fp8Sink dqkv_fp8;   // without q: not requested
  uint32_t* counter;  // for take_item() in work_list.cuh
  float log2_keep;    // log2(1 - dropout probability)
};

/// The key tiles of an item. kSplit: not all of its sequence.
template <bool kSplit>
__device__ __forceinline__ int first_key_tile(const AttentionItem& item) {
  return kSplit ? item.first_tile : 0;
}
template <bool kSplit>
__device__ __forceinline__ int end_key_tile(const AttentionItem& item) {
  return kSplit ? item.end_tile : item.tiles();
}

/// Parity of use number `count`, from 0, in a ring of `places`.
__device__ __forceinline__ uint32_t parity_of(int count, int places) {
  return static_cast<uint32_t>(count / places % 2);
}

}  // namespace bertha::backward

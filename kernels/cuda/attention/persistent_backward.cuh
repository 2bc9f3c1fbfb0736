#pragma once

// What the roles of persistent_backward.cu share: its thread block, its shared memory, its
// barriers.

#include "kernels/cuda/attention/persistent.h"
#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/attention/work_list.cuh"
#include "kernels/cuda/tensor_core/barrier.cuh"
#include "kernels/cuda/tensor_core/wgmma.cuh"

namespace bertha::backward {

inline constexpr int kHeadSize = 64;
inline constexpr int kMostTiles = 8;  // of kTileRows queries or keys, in a sequence
inline constexpr int kRowBytes = 2 * kHeadSize;
inline constexpr int kTileBytes = kTileRows * kRowBytes;
inline constexpr int kSteps = kHeadSize / 16;  // of a product over 64 inner indices
inline constexpr int kWarpRows = 16;           // of an accumulator

inline constexpr int kParts = 3;  // of dqkv: dQ, dK, dV

inline constexpr int kConsumers = 2;  // warpgroups that compute, a tile of keys each
static_assert(kConsumers == kColumnSumsOfSeq);
inline constexpr int kWarps = 4;  // of a warpgroup
inline constexpr int kThreads = kWarpgroupThreads * (kConsumers + 1);
inline constexpr int kStages = 2;     // tiles of queries in shared memory
inline constexpr int kSlots = 2;      // items whose statistics are there
inline constexpr int kMaskWords = 4;  // of a query for a block of keys
inline constexpr int kMaskBytes = kTileRows * kMaskWords * 4;

// A warp of the statistics takes 16 rows at a time: 4 rows a load, 4 loads under way.
inline constexpr int kStatisticsWarps = 3;
inline constexpr int kGroupRows = 16;
inline constexpr int kGroupsOfTile = kTileRows / kGroupRows;

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kInfinity = __builtin_huge_valf();

// Queries of a tile that are a consumer lane's columns: 8 n + 2 (lane % 4), and the next.
inline constexpr int kLaneQueries = 16;

/// Where the statistics of query `row` of a sequence are: those of a lane lie together.
__device__ __forceinline__ int place_of_query(int row) {
  const int in_tile = row % kTileRows;
  return row - in_tile + in_tile % 8 / 2 * kLaneQueries + in_tile / 8 * 2 + in_tile % 2;
}

/// Shared memory of a thread block. Whose barriers are for what: header of persistent_backward.cu.
struct alignas(1024) Shared {
  float4 dquery[kMostTiles][kWarps][8][kWarpThreads];  // [tile][warp][8 columns][lane]
  // Of a warpgroup, K and V of a block by turns: V is read into registers at once, and K of the next
  // block takes its place; V of the next block follows where K was.
  unsigned char keys_values[kConsumers][2][kTileBytes];
  struct {
    unsigned char query[kTileBytes];
    unsigned char dout[kTileBytes];
  } stage[kStages];
  unsigned char dscores[kConsumers][kTileBytes];  // [key][query]
  uint32_t mask[kStages][kTileRows][kMaskWords];
  // Of queries, at place_of_query(). lse: in units of log2, plus that of keep, so that exp2 gives
  // P / keep; infinity behind the sequence: its probabilities are 0. delta: keep * rowsum(dO * O).
  float lse[kSlots][kMostTiles * kTileRows];
  float delta[kSlots][kMostTiles * kTileRows];
  // Of the rows of dQ, dK, dV that a warp has written for the item; see column_of_lane().
  float2 column_sums[kConsumers][kParts][kWarps][kWarpThreads];
  AttentionItem items[kSlots];
  WorkOrder order;
  uint64_t keys_full[kConsumers];
  uint64_t keys_empty[kConsumers];
  uint64_t values_full[kConsumers];
  uint64_t values_empty[kConsumers];
  uint64_t stage_full[kStages];
  uint64_t stage_empty[kStages];
  uint64_t announced[kSlots];
  uint64_t released[kSlots];
  uint64_t statistics_full[kSlots][kMostTiles];
  uint64_t added[kConsumers][kWarps];
};
constexpr int kMostSharedBytes = 227 * 1024;  // that a thread block can have
static_assert(sizeof(Shared) <= kMostSharedBytes);

/// Goes to the kernel by value.
struct Arguments {
  CUtensorMap qkv;
  CUtensorMap dout;
  CUtensorMap mask;  // without dropout: nothing
  AttentionBwdParams params;
  uint32_t* counter;    // of work_list.cuh
  int64_t live_tokens;  // of all sequences
  float log2_keep;      // of 1 - the probability of dropout

  __device__ __forceinline__ int items() const { return params.batch.seqs * params.batch.heads; }
};

/// Parity of use number `count`, from 0, of one of `places` that are used by turns.
__device__ __forceinline__ uint32_t parity_of(int count, int places) {
  return static_cast<uint32_t>(count / places % 2);
}

}  // namespace bertha::backward

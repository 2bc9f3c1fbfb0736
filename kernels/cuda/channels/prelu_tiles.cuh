#pragma once

#include <numeric>
#include <optional>

#include "kernels/cuda/channels/channels.cuh"
#include "kernels/cuda/common/inter_block_exchange.cuh"
#include "kernels/cuda/common/reduce.cuh"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_context.h"

namespace bertha {

// PReLU backward of tensors so small that starting, adding up and ending take as long as memory: one
// short kernel, one block to an SM, whose threads stay at their octet of a row and go from
// row to row by adding. Against tiles in clusters (channels last two kernels): 13.8 -> 11.0 us at
// 512 x 7 x 7, 17.0 -> 15.4 at 256 x 14 x 14 (13.4 -> 11.0, 17.4 -> 15.9); a copy of as many bytes
// takes 9.8 and 14.1. Four octets of a thread on their way for two are slower (11.6).
//
// A Policy is PReLU's BackwardSums, a Finish its SlopeFinish.

inline constexpr int kPreluTileThreads = 800;
inline constexpr int kPreluColumns = 64;  // of a tile, channels last
inline constexpr int kPreluColumnOctets = kPreluColumns / kVecSize;
static_assert(kPreluColumns <= kExchangeWords);

/// A thread's way through the rows of its tile, kInFlight of them at once: at row `row` it works on
/// the octet of element `at`; its next row is rows_at_once rows and `step` elements further.
template <class Policy>
struct PreluWalk {
  static constexpr int kInFlight = Policy::kInFlight;
  typename Policy::template Operands<kVecSize> operands[kInFlight];
  int row;
  int end;
  int rows_at_once;
  int at;
  int step;

  __device__ __forceinline__ void load(const Policy& policy) {
    constexpr LaneRange kAll{0, kVecSize};
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (row + k * rows_at_once >= end) continue;
      operands[k] = policy.template load<kVecSize>(at + k * step, kAll, true);
    }
  }
  /// Works on what was loaded, and goes on to the end.
  __device__ __forceinline__ void finish(const Policy& policy, const float (&slopes)[kVecSize],
                                         bool writes, float (&sums)[kVecSize]) {
    while (row < end) {
#pragma unroll
      for (int k = 0; k < kInFlight; ++k) {
        if (row + k * rows_at_once >= end) continue;
        const auto dx = policy.gradients(operands[k], slopes, sums);
        if (writes) store_vec(policy.dx + (at + k * step), dx);
      }
      row += kInFlight * rows_at_once;
      at += kInFlight * step;
      load(policy);
    }
  }
};

// --- channels first: a block owns all planes of some channels ---------------------------------

struct PreluPlaneTiles {
  int tiles;
  int channels;      // of a tile
  int width;         // octets that a tile's planes of an image touch, the most
  int rows_at_once;  // images
};

/// Nothing where tiles would not occupy the device, or octets that two tiles share (each wants dy of
/// all lanes, and one writes them) are written where dy is read.
template <class Policy>
std::optional<PreluPlaneTiles> plan_prelu_planes(const CudaContext& context, const Policy& policy,
                                                 const ChannelExtents& extents, bool aligned) {
  const int64_t row = extents.channels * extents.inner;
  if (!aligned || extents.inner < kVecSize || row % kVecSize != 0) return std::nullopt;
  int64_t channels = ceil_div(extents.channels, context.sm_count);
  while (extents.channels % channels != 0) ++channels;
  const int64_t tiles = extents.channels / channels;
  if (4 * tiles < 3 * context.sm_count) return std::nullopt;
  const int64_t tile = channels * extents.inner;
  const int64_t latest =
      kVecSize - std::gcd(int64_t{kVecSize}, tile);  // lane that a tile begins at
  if (latest > 0 && policy.dx == policy.dy) return std::nullopt;
  const int64_t width = ceil_div(tile + latest, kVecSize);
  if (4 * width > kPreluTileThreads) return std::nullopt;
  const int64_t rows_at_once = kPreluTileThreads / width;
  if (extents.elements() + 2 * Policy::kInFlight * rows_at_once * row > INT32_MAX) {
    return std::nullopt;
  }
  return PreluPlaneTiles{static_cast<int>(tiles), static_cast<int>(channels),
                         static_cast<int>(width), static_cast<int>(rows_at_once)};
}

/// Blocks of (width, rows_at_once) threads.
template <class Policy, class Finish>
__global__ void __launch_bounds__(kPreluTileThreads, 1)
    prelu_planes_kernel(Policy policy, Finish finish, ChannelExtents extents, int owned) {
  __shared__ float of_threads[2][kPreluTileThreads];
  __shared__ float of_slots[2][kPreluTileThreads];
  const auto inner = static_cast<int>(extents.inner);
  const auto channels = static_cast<int>(extents.channels);
  const int row_elements = channels * inner;
  const int tile_elements = owned * inner;
  const int first_channel = static_cast<int>(blockIdx.x) * owned;
  const int begin = first_channel * inner;
  const int skew = begin % kVecSize;  // lanes of the first octet that are the tile before's
  const auto slot = static_cast<int>(threadIdx.x);
  const auto width = static_cast<int>(blockDim.x);
  const auto rows_at_once = static_cast<int>(blockDim.y);
  const int inside = slot * kVecSize - skew;  // the octet's place in the tile

  PreluWalk<Policy> walk;
  walk.row = static_cast<int>(threadIdx.y);
  walk.end = inside < tile_elements ? static_cast<int>(extents.outer) : 0;
  walk.rows_at_once = rows_at_once;
  walk.at = walk.row * row_elements + begin + inside;
  walk.step = rows_at_once * row_elements;
  walk.load(policy);
  // Lanes below `left` belong to the tile's channel `channel`, the others to the one behind it.
  const int channel = inside < 0 ? -1 : inside / inner;
  const int left = (channel + 1) * inner - inside;
  const auto slope_of = [&](int of) {
    const int known = of < 0 ? 0 : (of < channels ? of : channels - 1);
    return policy.constant(known, 0);
  };
  const float slope = slope_of(first_channel + channel);
  const float slope_behind = slope_of(first_channel + channel + 1);
  float slopes[kVecSize];
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) slopes[i] = i < left ? slope : slope_behind;
  float sums[kVecSize] = {};
  walk.finish(policy, slopes, inside >= 0, sums);

  float of_part[2] = {};
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) {
    of_part[0] += i < left ? sums[i] : 0.0f;
    of_part[1] += i < left ? 0.0f : sums[i];
  }
  const int thread = static_cast<int>(threadIdx.y) * width + slot;
  of_threads[0][thread] = of_part[0];
  of_threads[1][thread] = of_part[1];
  __syncthreads();
  if (thread < 2 * width) {
    const int part = thread < width ? 0 : 1;
    const int of_slot = thread - part * width;
    float total = 0.0f;
#pragma unroll 8
    for (int r = 0; r < rows_at_once; ++r) total += of_threads[part][r * width + of_slot];
    of_slots[part][of_slot] = total;
  }
  __syncthreads();
  const int warps = rows_at_once * width / kWarpThreads;  // whole ones
  const int warp = thread / kWarpThreads;
  const int lane = thread % kWarpThreads;
  if (warp == warps) return;
  for (int own = warp; own < owned; own += warps) {
    const int low = own * inner + skew;
    float total = 0.0f;
    for (int s = low / kVecSize + lane; s * kVecSize < low + inner; s += kWarpThreads) {
      total += of_slots[s * kVecSize < low ? 1 : 0][s];
    }
    const float sum[1] = {warp_sum(total)};
    const int of = first_channel + own;
    if (lane == 0) finish(of, finish.load(of), sum, true, nullptr);
  }
}

template <class Policy, class Finish>
void launch_prelu_planes(const CudaContext& context, const Policy& policy, const Finish& finish,
                         const ChannelExtents& extents, const PreluPlaneTiles& tiles) {
  const dim3 threads(static_cast<unsigned>(tiles.width), static_cast<unsigned>(tiles.rows_at_once));
  prelu_planes_kernel<<<tiles.tiles, threads, 0, context.stream>>>(policy, finish, extents,
                                                                   tiles.channels);
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

// --- channels last: blocks share a tile of columns --------------------------------------------

struct PreluColumnTiles {
  int tiles;
  int splits;  // blocks of a tile
  int rows_of_block;
};

inline std::optional<PreluColumnTiles> plan_prelu_columns(const CudaContext& context,
                                                          const ChannelExtents& extents,
                                                          bool aligned) {
  constexpr int64_t kStepRows = kPreluTileThreads / kPreluColumnOctets;
  if (!aligned || extents.inner != 1 || extents.channels % kPreluColumns != 0) return std::nullopt;
  const int64_t tiles = extents.channels / kPreluColumns;
  const int64_t splits = context.sm_count / tiles;
  // One tile means many splits for one block to add up: 46.8 us for 44.3 at 64 x 56 x 56.
  if (tiles < 2 || splits < 2) return std::nullopt;
  if (extents.elements() + 16 * kStepRows * extents.channels > INT32_MAX) return std::nullopt;
  return PreluColumnTiles{static_cast<int>(tiles), static_cast<int>(splits),
                          static_cast<int>(ceil_div(extents.outer, splits))};
}

/// The number of a word, after waiting for it where `found` is zero; leaves the word as it was
/// before.
__device__ __forceinline__ float take_number(uint64_t* word, uint64_t found) {
  const float number = number_of<float>(awaited(word, found));
  leave_word(word, 0);
  return number;
}

/// Grid (tiles, splits), blocks of (kPreluColumnOctets, rows at once) threads. The sums of a tile's
/// blocks travel in words [splits][tiles][kPreluColumns], each with a sign that it is there, to the
/// last of them, which is placed when all others run or are done: no barrier, no second kernel, and
/// no fence, which would wait for the stores of dx.
template <class Policy, class Finish>
__global__ void __launch_bounds__(kPreluTileThreads, 1)
    prelu_columns_kernel(Policy policy, Finish finish, int rows, int channels, int rows_of_block,
                         uint64_t* words) {
  constexpr int kWarps = kPreluTileThreads / kWarpThreads;
  constexpr int kGroups = kPreluTileThreads / kPreluColumns;
  __shared__ float of_warps[kWarps][kPreluColumns];
  __shared__ float of_groups[kGroups][kPreluColumns];
  const auto slot = static_cast<int>(threadIdx.x);
  const auto split = static_cast<int>(blockIdx.y);
  const int first_channel = static_cast<int>(blockIdx.x) * kPreluColumns;
  const int column = first_channel + slot * kVecSize;
  const int end = (split + 1) * rows_of_block;

  PreluWalk<Policy> walk;
  walk.row = split * rows_of_block + static_cast<int>(threadIdx.y);
  walk.end = end < rows ? end : rows;
  walk.rows_at_once = static_cast<int>(blockDim.y);
  walk.at = walk.row * channels + column;
  walk.step = walk.rows_at_once * channels;
  walk.load(policy);
  float slopes[kVecSize];
#pragma unroll
  for (int i = 0; i < kVecSize; ++i) slopes[i] = policy.constant(column + i, 0);
  float sums[kVecSize] = {};
  walk.finish(policy, slopes, true, sums);

  // A warp has four rows; two steps over them hand each thread two of its eight channels.
  const int thread = static_cast<int>(threadIdx.y) * kPreluColumnOctets + slot;
  const int lane = thread % kWarpThreads;
  share_sums<kVecSize / 2>(sums, lane, kWarpThreads / 2);
  share_sums<kVecSize / 4>(sums, lane, kWarpThreads / 4);
  const int pair = slot * kVecSize + lane / kPreluColumnOctets * 2;
  of_warps[thread / kWarpThreads][pair] = sums[0];
  of_warps[thread / kWarpThreads][pair + 1] = sums[1];
  __syncthreads();
  float total = 0.0f;
  if (thread < kPreluColumns) {
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) total += of_warps[warp][thread];
  }
  const int own = thread % kPreluColumns;
  const int64_t stride = static_cast<int>(gridDim.x) * kPreluColumns;
  uint64_t* const of_tile = words + first_channel + own;
  const int others = static_cast<int>(gridDim.y) - 1;
  if (split < others) {
    if (thread < kPreluColumns) leave_word(of_tile + split * stride, word_of(total));
    return;
  }
  const int group = thread / kPreluColumns;
  if (group < kGroups) {
    for (int other = group; other < others; other += 2 * kGroups) {
      const bool has_two = other + kGroups < others;
      uint64_t* const one = of_tile + other * stride;
      uint64_t* const two = has_two ? one + kGroups * stride : one;
      const uint64_t found = look_at(one);
      const uint64_t found_two = look_at(two);
      total += take_number(one, found);
      if (has_two) total += take_number(two, found_two);
    }
    of_groups[group][own] = total;
  }
  __syncthreads();
  if (thread >= kPreluColumns) return;
  float sum[1] = {};
#pragma unroll
  for (int g = 0; g < kGroups; ++g) sum[0] += of_groups[g][own];
  finish(first_channel + own, finish.load(first_channel + own), sum, true, nullptr);
}

template <class Policy, class Finish>
void launch_prelu_columns(const CudaContext& context, const Policy& policy, const Finish& finish,
                          const ChannelExtents& extents, const PreluColumnTiles& tiles) {
  const dim3 blocks(static_cast<unsigned>(tiles.tiles), static_cast<unsigned>(tiles.splits));
  const dim3 threads(kPreluColumnOctets, kPreluTileThreads / kPreluColumnOctets);
  prelu_columns_kernel<<<blocks, threads, 0, context.stream>>>(
      policy, finish, static_cast<int>(extents.outer), static_cast<int>(extents.channels),
      tiles.rows_of_block, context.exchange.words());
  BERTHA_CUDA_CHECK(cudaGetLastError());
}

}  // namespace bertha

#pragma once

#include <numeric>
#include <optional>
#include <utility>

#include "kernels/base/cuda/cuda_context.h"
#include "kernels/rows/cuda/channels/channels.cuh"

namespace bertha {

// How channel_tiles.cuh cuts tensors, and which ones it takes: none where portable kernels run. An
// SM has one block where all tiles run at once, and where more do not fit; else two, or four in
// BatchNorm backward with S % 8 == 0 (kernels/rows/measured/rows.md).

inline constexpr int kMostTileBlocks = 8;  // the largest cluster that every device grants
inline constexpr int kMostTileChannels = 64;

/// Threads of a block.
constexpr int tile_threads(int blocks_per_sm) {
  return blocks_per_sm == 4 ? 224 : 768 / blocks_per_sm;
}

/// Bytes for vectors in a block's share of 227 KiB, in addition to the sums of its threads.
constexpr int64_t tile_bytes(int blocks_per_sm) {
  return blocks_per_sm == 1 ? 200 << 10 : (blocks_per_sm == 2 ? 98 << 10 : 53 << 10);
}

/// A tensor of 31-bit indices in tiles. A row is an image, or the channels of a pixel.
struct ChannelTiles {
  VecChannels kind;
  int blocks_per_sm;  // 1, 2 or 4
  int tiles;
  int channels;       // of a tile
  int blocks;         // of a tile
  int width;          // vectors of a tile in a row
  int vecs;           // of a tile
  int block_vecs;     // of a block; but for kOne, whole rows
  int stride;         // vectors that a block takes at once; but for kOne, whole rows
  int step_slots;     // from a thread's vector to its next: within the row (kOne)
  int step_elements;  // in memory
  int wrap_elements;  // in memory, where that passes the tile's end of a row (kOne)
  int row_elements;   // of all channels
  Divisor by_width{1};

  void split(int blocks_of_tile) {
    const int unit = kind == VecChannels::kOne ? 1 : width;
    blocks = blocks_of_tile;
    block_vecs = static_cast<int>(ceil_div(vecs / unit, blocks)) * unit;
  }
  bool fits(int64_t vec_bytes) const { return block_vecs * vec_bytes <= tile_bytes(blocks_per_sm); }
};

/// Tiles of `channels` channels with one block each, or nothing if 31 bits or a block's threads are
/// too few.
inline std::optional<ChannelTiles> cut_into_tiles(const ChannelsShape& extents, VecChannels kind,
                                                  int64_t channels, int blocks_per_sm) {
  constexpr int64_t kMostStepsPastEnd = 16;  // of a thread's index
  const int64_t width = channels * extents.inner / kVecSize;
  const int64_t row_elements = extents.channels * extents.inner;
  int64_t stride = tile_threads(blocks_per_sm);
  if (kind != VecChannels::kOne) stride = stride / width * width;
  if (stride == 0) return std::nullopt;
  const int64_t step_slots = stride % width;
  const int64_t step_elements = stride / width * row_elements + step_slots * kVecSize;
  if (extents.elements() + kMostStepsPastEnd * (step_elements + row_elements) > INT32_MAX) {
    return std::nullopt;
  }
  ChannelTiles tiles{.kind = kind,
                     .blocks_per_sm = blocks_per_sm,
                     .tiles = static_cast<int>(extents.channels / channels),
                     .channels = static_cast<int>(channels),
                     .blocks = 1,
                     .width = static_cast<int>(width),
                     .vecs = static_cast<int>(extents.outer * width),
                     .block_vecs = 0,
                     .stride = static_cast<int>(stride),
                     .step_slots = static_cast<int>(step_slots),
                     .step_elements = static_cast<int>(step_elements),
                     .wrap_elements = static_cast<int>(row_elements - width * kVecSize),
                     .row_elements = static_cast<int>(row_elements),
                     .by_width = Divisor(width)};
  tiles.split(1);
  return tiles;
}

/// Tiles of planes, for channels first, that keep `kept` vectors of vec_bytes at each place; or
/// nothing where they do not suit. `aligned` says whether all tensors begin at multiples of 16
/// bytes.
inline std::optional<ChannelTiles> plan_plane_tiles(const CudaContext& context,
                                                    const ChannelsShape& extents, int kept,
                                                    int64_t vec_bytes, bool aligned) {
  // Blocks of an SM, and the most of a tile: two large ones where all tiles run at once.
  constexpr std::pair<int, int> kChoices[] = {
      {1, 2}, {4, kMostTileBlocks}, {2, kMostTileBlocks}, {1, kMostTileBlocks}};
  const bool is_one = extents.inner % kVecSize == 0;
  if (context.kernels != KernelSet::kSm90a) return std::nullopt;
  if (!aligned || (!is_one && extents.inner < kVecSize)) return std::nullopt;
  const int64_t channels = is_one ? 1 : kVecSize / std::gcd(int64_t{kVecSize}, extents.inner);
  if (extents.channels % channels != 0) return std::nullopt;
  const VecChannels kind = is_one ? VecChannels::kOne : VecChannels::kTwo;
  for (const auto& [blocks_per_sm, most_blocks] : kChoices) {
    if (blocks_per_sm == 4 && (!is_one || kept < 2)) continue;  // BatchNorm backward only
    const auto cut = cut_into_tiles(extents, kind, channels, blocks_per_sm);
    if (!cut) continue;
    ChannelTiles tiles = *cut;
    if (most_blocks == 2 && tiles.tiles > context.sm_count) continue;
    while (tiles.blocks < most_blocks && !tiles.fits(kept * vec_bytes)) {
      tiles.split(2 * tiles.blocks);
    }
    if (!tiles.fits(kept * vec_bytes)) continue;
    // More blocks where SMs would be idle.
    while (tiles.blocks < kMostTileBlocks && tiles.block_vecs > 2 * tiles.stride &&
           int64_t{2} * tiles.tiles * tiles.blocks <= context.sm_count * tiles.blocks_per_sm) {
      tiles.split(2 * tiles.blocks);
    }
    const bool is_long = tiles.block_vecs > 4 * tiles.stride;
    if (is_long && int64_t{2} * tiles.tiles * tiles.blocks < context.sm_count) {
      return std::nullopt;
    }
    return tiles;
  }
  return std::nullopt;
}

/// Tiles of columns, for channels last: as many blocks as run at once.
inline std::optional<ChannelTiles> plan_column_tiles(const CudaContext& context,
                                                     const ChannelsShape& extents, int kept,
                                                     int64_t vec_bytes, bool aligned) {
  const int64_t channels = std::gcd(int64_t{kMostTileChannels}, extents.channels);
  if (context.kernels != KernelSet::kSm90a) return std::nullopt;
  if (!aligned || extents.inner != 1 || channels < kVecSize) return std::nullopt;
  const auto cut = cut_into_tiles(extents, VecChannels::kConsecutive, channels, 1);
  if (!cut || cut->tiles > context.sm_count) return std::nullopt;
  ChannelTiles tiles = *cut;
  const auto most_busy = static_cast<int>(ceil_div(tiles.vecs, tiles.stride));
  const int resident = context.sm_count / tiles.tiles;
  tiles.split(most_busy < resident ? most_busy : resident);
  if (!tiles.fits(kept * vec_bytes)) return std::nullopt;
  return tiles;
}

}  // namespace bertha

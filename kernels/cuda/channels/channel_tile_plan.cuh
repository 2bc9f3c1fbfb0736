#pragma once

#include <numeric>
#include <optional>

#include "kernels/cuda/channels/channels.cuh"
#include "kernels/cuda/cuda_context.h"

namespace bertha {

// How channel_tiles.cuh cuts tensors, and where it suits them.

inline constexpr int kTileThreads = 768;   // of an SM
inline constexpr int kMostTileBlocks = 8;  // the largest cluster that every device grants
inline constexpr int kMostTileChannels = 64;

/// How tensors are cut into tiles; a place is an octet of each tensor. All in 32 bits: kernels step
/// from place to place beside every octet.
struct ChannelTiles {
  OctetChannels kind;
  int beside;  // blocks of an SM: 1 or 2
  int tiles;
  int channels;       // of a tile
  int blocks;         // of a tile
  int width;          // places of a tile in a row of all channels
  int places;         // of a tile
  int of_block;       // places of a block; but for kSame, whole rows
  int turn;           // places that a block takes at once; but for kSame, whole rows
  int step_slots;     // from a thread's place to its next, within a row
  int step_elements;  // and in memory
  int wrap_elements;  // in memory, where that passes the tile's end of a row
  int row_elements;   // of all channels
};

/// Steps that a thread may take behind its last place.
inline constexpr int64_t kMostStepsBehind = 16;

/// Tiles of so many channels, `beside` blocks to an SM, one block to a tile; nothing
/// where 32 bits or the threads of a block are too few.
inline std::optional<ChannelTiles> cut_into_tiles(const ChannelExtents& extents, OctetChannels kind,
                                                  int64_t channels, int beside) {
  const int64_t width = channels * extents.inner / kVecSize;
  const int64_t row_elements = extents.channels * extents.inner;
  int64_t turn = kTileThreads / beside;
  if (kind != OctetChannels::kSame) turn = turn / width * width;
  if (turn == 0) return std::nullopt;
  const int64_t step_slots = turn % width;
  const int64_t step_elements = turn / width * row_elements + step_slots * kVecSize;
  if (extents.elements() + kMostStepsBehind * (step_elements + row_elements) > INT32_MAX) {
    return std::nullopt;
  }
  ChannelTiles tiles{};
  tiles.kind = kind;
  tiles.beside = beside;
  tiles.tiles = static_cast<int>(extents.channels / channels);
  tiles.channels = static_cast<int>(channels);
  tiles.blocks = 1;
  tiles.width = static_cast<int>(width);
  tiles.places = static_cast<int>(extents.outer * width);
  tiles.of_block = tiles.places;
  tiles.turn = static_cast<int>(turn);
  tiles.step_slots = static_cast<int>(step_slots);
  tiles.step_elements = static_cast<int>(step_elements);
  tiles.wrap_elements = static_cast<int>(row_elements - width * kVecSize);
  tiles.row_elements = static_cast<int>(row_elements);
  return tiles;
}

inline void deal_to_blocks(ChannelTiles& tiles, int blocks) {
  const int unit = tiles.kind == OctetChannels::kSame ? 1 : tiles.width;
  tiles.blocks = blocks;
  tiles.of_block = static_cast<int>(ceil_div(tiles.places / unit, blocks)) * unit;
}

/// Whether a block's places can be kept: one or two blocks have what the sums of their threads
/// leave of an SM's 227 KiB.
inline bool is_kept(const ChannelTiles& tiles, int64_t kept_bytes) {
  return tiles.of_block * kept_bytes <= (tiles.beside == 1 ? 200 << 10 : 98 << 10);
}

/// Tiles of planes, for channels first, or nothing where they do not suit. `aligned` says whether
/// all tensors begin at multiples of 16 bytes, kept_bytes what a place takes of shared memory.
inline std::optional<ChannelTiles> plan_plane_tiles(const CudaContext& context,
                                                    const ChannelExtents& extents,
                                                    int64_t kept_bytes, bool aligned) {
  struct Choice {
    int beside;
    int most_blocks;
  };
  // Measured: one large block per tile, at most two, is best where all tiles run at once.
  constexpr Choice kChoices[] = {{1, 2}, {2, kMostTileBlocks}, {1, kMostTileBlocks}};
  const bool is_same = extents.inner % kVecSize == 0;
  if (!aligned || (!is_same && extents.inner < kVecSize)) return std::nullopt;
  const int64_t channels = is_same ? 1 : kVecSize / std::gcd(int64_t{kVecSize}, extents.inner);
  if (extents.channels % channels != 0) return std::nullopt;
  const OctetChannels kind = is_same ? OctetChannels::kSame : OctetChannels::kTwo;
  for (const Choice& choice : kChoices) {
    const auto cut = cut_into_tiles(extents, kind, channels, choice.beside);
    if (!cut) continue;
    ChannelTiles tiles = *cut;
    if (choice.most_blocks == 2 && tiles.tiles > context.sm_count) continue;
    while (tiles.blocks < choice.most_blocks && !is_kept(tiles, kept_bytes)) {
      deal_to_blocks(tiles, 2 * tiles.blocks);
    }
    if (!is_kept(tiles, kept_bytes)) continue;
    // More blocks where SMs would be idle.
    while (tiles.blocks < kMostTileBlocks && tiles.of_block > 2 * tiles.turn &&
           int64_t{2} * tiles.tiles * tiles.blocks <= context.sm_count * tiles.beside) {
      deal_to_blocks(tiles, 2 * tiles.blocks);
    }
    const bool is_long = tiles.of_block > 4 * tiles.turn;
    if (is_long && int64_t{2} * tiles.tiles * tiles.blocks < context.sm_count) {
      return std::nullopt;
    }
    return tiles;
  }
  return std::nullopt;
}

/// Tiles of columns, for channels last: as many blocks as run at once.
inline std::optional<ChannelTiles> plan_column_tiles(const CudaContext& context,
                                                     const ChannelExtents& extents,
                                                     int64_t kept_bytes, bool aligned) {
  const int64_t channels = std::gcd(int64_t{kMostTileChannels}, extents.channels);
  if (!aligned || extents.inner != 1 || channels < kVecSize) return std::nullopt;
  const auto cut = cut_into_tiles(extents, OctetChannels::kNeighbours, channels, 1);
  if (!cut || cut->tiles > context.sm_count) return std::nullopt;
  ChannelTiles tiles = *cut;
  const auto turns = static_cast<int>(ceil_div(tiles.places, tiles.turn));
  const int most = context.sm_count / tiles.tiles;
  deal_to_blocks(tiles, turns < most ? turns : most);
  if (!is_kept(tiles, kept_bytes)) return std::nullopt;
  return tiles;
}

/// Tiles whose elements are all kept, or nothing.
inline std::optional<ChannelTiles> plan_channel_tiles(const CudaContext& context,
                                                      const ChannelExtents& extents,
                                                      int64_t kept_bytes, bool aligned) {
  if (extents.inner == 1) return plan_column_tiles(context, extents, kept_bytes, aligned);
  return plan_plane_tiles(context, extents, kept_bytes, aligned);
}

}  // namespace bertha

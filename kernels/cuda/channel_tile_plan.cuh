#pragma once

#include <numeric>
#include <optional>

#include "kernels/cuda/channels.cuh"
#include "kernels/cuda/cuda_context.h"

namespace bertha {

// How channel_tiles.cuh cuts tensors, and where it suits them.

inline constexpr int kTileThreads = 768;   // of a multiprocessor
inline constexpr int kMostTileBlocks = 8;  // the largest cluster that every device grants
inline constexpr int kMostTileChannels = 64;

/// How tensors are cut into tiles; a place is an octet of each tensor.
struct ChannelTiles {
  OctetChannels kind;
  int beside;  // blocks of a multiprocessor: 1 or 2
  int64_t tiles;
  int channels;           // of a tile
  int blocks;             // of a tile
  int64_t width;          // places of a tile in a row of all channels
  int64_t places;         // of a tile
  int64_t of_block;       // places of a block; but for kSame, whole rows
  int64_t turn;           // places that a block takes at once; but for kSame, whole rows
  int64_t step_slots;     // from a thread's place to its next, within a row
  int64_t step_elements;  // and in memory
  int64_t wrap_elements;  // in memory, where that passes the tile's end of a row
  int64_t row_elements;   // of all channels
};

/// Tiles of so many channels, `beside` blocks to a multiprocessor, one block to a tile.
inline ChannelTiles cut_into_tiles(const ChannelExtents& extents, OctetChannels kind,
                                   int64_t channels, int beside) {
  ChannelTiles tiles{};
  tiles.kind = kind;
  tiles.beside = beside;
  tiles.tiles = extents.channels / channels;
  tiles.channels = static_cast<int>(channels);
  tiles.width = channels * extents.inner / kOctet;
  tiles.places = extents.outer * tiles.width;
  tiles.blocks = 1;
  tiles.of_block = tiles.places;
  tiles.turn = kTileThreads / beside;
  if (kind != OctetChannels::kSame) tiles.turn = tiles.turn / tiles.width * tiles.width;
  if (tiles.turn == 0) return tiles;
  tiles.row_elements = extents.channels * extents.inner;
  tiles.step_slots = tiles.turn % tiles.width;
  tiles.step_elements = tiles.turn / tiles.width * tiles.row_elements + tiles.step_slots * kOctet;
  tiles.wrap_elements = tiles.row_elements - tiles.width * kOctet;
  return tiles;
}

inline void deal_to_blocks(ChannelTiles& tiles, int64_t blocks) {
  const int64_t unit = tiles.kind == OctetChannels::kSame ? 1 : tiles.width;
  tiles.blocks = static_cast<int>(blocks);
  tiles.of_block = ceil_div(tiles.places / unit, blocks) * unit;
}

/// Whether a block's places can be kept: one or two blocks have what the sums of their threads
/// leave of a multiprocessor's 227 KiB.
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
  const bool is_same = extents.inner % kOctet == 0;
  if (!aligned || (!is_same && extents.inner < kOctet)) return std::nullopt;
  const int64_t channels = is_same ? 1 : kOctet / std::gcd(int64_t{kOctet}, extents.inner);
  if (extents.channels % channels != 0) return std::nullopt;
  const OctetChannels kind = is_same ? OctetChannels::kSame : OctetChannels::kTwo;
  for (const Choice& choice : kChoices) {
    ChannelTiles tiles = cut_into_tiles(extents, kind, channels, choice.beside);
    if (choice.most_blocks == 2 && tiles.tiles > context.multiprocessors) continue;
    if (tiles.turn == 0) continue;
    while (tiles.blocks < choice.most_blocks && !is_kept(tiles, kept_bytes)) {
      deal_to_blocks(tiles, 2 * tiles.blocks);
    }
    if (!is_kept(tiles, kept_bytes)) continue;
    // More blocks where multiprocessors would be idle.
    while (tiles.blocks < kMostTileBlocks && tiles.of_block > 2 * tiles.turn &&
           tiles.tiles * tiles.blocks * 2 <= int64_t{context.multiprocessors} * tiles.beside) {
      deal_to_blocks(tiles, 2 * tiles.blocks);
    }
    const bool is_long = tiles.of_block > 4 * tiles.turn;
    if (is_long && tiles.tiles * tiles.blocks * 2 < context.multiprocessors) return std::nullopt;
    return tiles;
  }
  return std::nullopt;
}

/// Tiles of columns, for channels last: as many blocks as run at once.
inline std::optional<ChannelTiles> plan_column_tiles(const CudaContext& context,
                                                     const ChannelExtents& extents,
                                                     int64_t kept_bytes, bool aligned) {
  const int64_t channels = std::gcd(int64_t{kMostTileChannels}, extents.channels);
  if (!aligned || extents.inner != 1 || channels < kOctet) return std::nullopt;
  ChannelTiles tiles = cut_into_tiles(extents, OctetChannels::kNeighbours, channels, 1);
  if (tiles.tiles > context.multiprocessors) return std::nullopt;
  const int64_t turns = ceil_div(tiles.places, tiles.turn);
  const int64_t most = context.multiprocessors / tiles.tiles;
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

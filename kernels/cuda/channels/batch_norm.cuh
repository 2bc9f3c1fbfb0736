#pragma once

#include <optional>

#include "kernels/cuda/channels/batch_norm_sums.cuh"
#include "kernels/cuda/channels/channel_apply.cuh"
#include "kernels/cuda/channels/channel_sums.cuh"
#include "kernels/cuda/channels/channel_tiles.cuh"

namespace bertha {

// What batch_norm_relu_fwd.cu and batch_norm_relu_bwd.cu share.

/// f32 [kTables, stride] in scratch: what the last kernel needs of each channel.
struct NormTables {
  float* data;
  int64_t stride;  // channels, rounded up to a multiple of 16 bytes

  __device__ const float* of(int table) const { return data + table * stride; }
};

/// What the applying kernels of forward and backward share (channel_apply.cuh).
template <class T>
struct NormApply {
  static constexpr int kThreads = 128;
  static constexpr int kBlocksPerSm = 3;
  static constexpr int kVecs = 4 / static_cast<int>(sizeof(T));
  static constexpr bool kOverlapsPlanes = false;  // measured: slower
};

/// Tiles whose elements are all kept, or nothing.
template <class Tile>
std::optional<ChannelTiles> plan_tiles(const CudaContext& context, const ChannelExtents& extents,
                                       bool aligned) {
  constexpr int64_t kVecBytes = kVecSize * sizeof(typename Tile::Element);
  const auto plan = extents.inner == 1 ? plan_column_tiles : plan_plane_tiles;
  return plan(context, extents, Tile::kKept, kVecBytes, aligned);
}

/// The first two of three kernels: sums, and the constants that follow from them.
template <class Sums, class Finish>
NormTables sum_channels(CudaContext& context, const Sums& sums, const Finish& finish,
                        const ChannelExtents& extents, bool aligned) {
  using Sum = typename Sums::Sum;
  const ChannelSumPlan plan = plan_channel_sums<Sums>(context, extents, aligned);
  const int64_t stride = round_up(extents.channels, 4);
  const int64_t bytes = plan.splits * Sums::kQuantities * stride * int64_t{sizeof(Sum)};
  void* const scratch = context.scratch.take(bytes + Finish::kTables * stride * 4);
  const NormTables tables{reinterpret_cast<float*>(static_cast<char*>(scratch) + bytes), stride};
  launch_channel_sums(context, sums, extents, plan, static_cast<Sum*>(scratch));
  finish_channels(context, finish, static_cast<const Sum*>(scratch), plan.splits, extents.channels,
                  tables.data, stride);
  return tables;
}

}  // namespace bertha

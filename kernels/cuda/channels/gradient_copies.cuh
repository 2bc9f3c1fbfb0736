#pragma once

#include "kernels/cuda/channels/batch_norm_sums.cuh"
#include "kernels/cuda/channels/channel_tiles.cuh"
#include "kernels/cuda/tensor_core/barrier.cuh"

namespace bertha {

// BatchNorm backward of 16 bits on tiles of planes (channel_tiles.cuh) that are too many to run at
// once. Two blocks share an SM, so that one can read while the other one sums or writes:
// rows of dy and x come to shared memory by bulk copies, all of a block's on their way from its first
// moment, and are summed turn by turn as they land. Through registers only two octets of a thread are
// on their way: 84.5 -> 77.3 us at 1,024 x 14 x 14 with addend, 148.5 -> 143.7 at 512 x 28 x 28, 46.4
// -> 45.3 at 2,048 x 7 x 7. Other numbers of blocks and threads: kernels/measured/rows.md.

inline constexpr int kCopyBeside = 2;
inline constexpr int kCopyThreads = kTileThreads / kCopyBeside;
// Turns of a block, at most: a thread holds a byte of the mask of each.
inline constexpr int kCopyTurns = 10;
inline constexpr int kLeastCopyPlaces = 49;  // of a row, as at 7 x 7; shorter copies were not tried

/// The same tiles in turns of whole rows, which a barrier each can wait for, or nothing.
inline std::optional<ChannelTiles> plan_gradient_copies(ChannelTiles tiles, int64_t kept_bytes) {
  if (tiles.beside != kCopyBeside || tiles.width < kLeastCopyPlaces || tiles.width > kCopyThreads) {
    return std::nullopt;
  }
  const int rows_of_turn = kCopyThreads / tiles.width;
  const int rows = tiles.places / tiles.width;
  tiles.turn = rows_of_turn * tiles.width;
  tiles.step_slots = 0;
  tiles.step_elements = rows_of_turn * tiles.row_elements;
  for (; tiles.blocks <= kMostTileBlocks; ++tiles.blocks) {
    tiles.of_block = static_cast<int>(ceil_div(rows, tiles.blocks)) * tiles.width;
    if (is_kept(tiles, kept_bytes) && tiles.of_block <= kCopyTurns * tiles.turn) return tiles;
  }
  return std::nullopt;
}

/// Starts copying the block's rows of dy to `kept` and of x behind them, [of_block] octets each. The
/// rows of a turn complete on its barrier of `landed`. All threads call it.
template <OctetChannels kChannels, class T>
__device__ __forceinline__ void copy_rows(const GradientSums<T>& sums,
                                          const ChannelExtents& extents, const ChannelTiles& tiles,
                                          const TilePart<kChannels>& part, const uint4* kept,
                                          const uint64_t (&landed)[kCopyTurns]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int begin = part.rank * tiles.of_block;
  const int rows = begin < part.end ? (part.end - begin) / tiles.width : 0;
  const int rows_of_turn = tiles.turn / tiles.width;
  const auto row_bytes = static_cast<uint32_t>(tiles.width * static_cast<int>(sizeof(uint4)));
  if (thread < kCopyTurns) {
    const int of_turn = max(0, min(rows - thread * rows_of_turn, rows_of_turn));
    const uint32_t barrier = shared_address(landed + thread);
    barrier_init(barrier, 1);
    fence_barrier_init();
    barrier_arrive_expecting(barrier, 2 * row_bytes * static_cast<uint32_t>(of_turn));
  }
  __syncthreads();
  const int first_element = begin / tiles.width * tiles.row_elements +
                            part.first_channel * static_cast<int>(extents.inner);
  for (int copy = thread; copy < 2 * rows; copy += kCopyThreads) {
    const int row = copy / 2;
    const bool is_x = copy % 2 != 0;
    const T* const from = (is_x ? sums.x : sums.dy) + first_element + row * tiles.row_elements;
    const uint4* const to = kept + (is_x ? tiles.of_block : 0) + row * tiles.width;
    copy_bytes_async(shared_address(to), from, row_bytes,
                     shared_address(landed + row / rows_of_turn));
  }
}

/// Policy as in channel_tiles.cuh, of GradientSums and GradientFinish. All tensors begin at multiples
/// of 16 bytes.
template <class Policy, OctetChannels kChannels>
__global__ void __launch_bounds__(kCopyThreads, kCopyBeside)
    gradient_copies_kernel(Policy policy, ChannelExtents extents, ChannelTiles tiles) {
  using Element = typename Policy::Element;
  using Sums = GradientSums<Element>;
  constexpr int kQuantities = Sums::kQuantities;
  constexpr int kTables = GradientFinish::kTables;
  constexpr LaneRange kAll{0, kVecSize};
  extern __shared__ uint4 kept_words[];
  __shared__ PlaneSums<kChannels, float, kQuantities, kCopyThreads> shared;
  __shared__ float tables[kTables][kMostTileChannels];
  __shared__ uint64_t landed[kCopyTurns];
  const int thread = static_cast<int>(threadIdx.x);
  const TilePart<kChannels> part(extents, tiles);
  copy_rows(policy.sums, extents, tiles, part, kept_words, landed);

  const auto is_live = [&](int turn) { return part.first.place + turn * tiles.turn < part.end; };
  const auto element_of = [&](int turn) { return part.first.element + turn * tiles.step_elements; };
  uint32_t bits[kCopyTurns];
#pragma unroll
  for (int turn = 0; turn < kCopyTurns; ++turn) {
    bits[turn] = is_live(turn) ? policy.sums.mask[element_of(turn) / kVecSize] : 0;
  }
  const auto* const kept = reinterpret_cast<const Element*>(kept_words) + thread * kVecSize;
  const int kept_stride = tiles.of_block * kVecSize;

  ThreadSums<Sums> own;
  load_constants(policy.sums, tiles, part, own.constants);
  GradientFinish::Inputs inputs{};
  if (thread < tiles.channels) inputs = policy.finish.load(part.first_channel + thread);
#pragma unroll
  for (int turn = 0; turn < kCopyTurns; ++turn) {
    if (!is_live(turn)) continue;
    barrier_wait(shared_address(landed + turn), 0);
    const Element* const from = kept + turn * tiles.turn * kVecSize;
    const typename Sums::template Operands<kVecSize> operands{
        load_vec(from), load_vec(from + kept_stride), bits[turn]};
    policy.sums.template add<kVecSize>(operands, own.constants, element_of(turn), kAll, true,
                                       own.sums);
    ++own.octets;
  }
  sum_planes<kCopyThreads>(policy.sums, own, part.lanes, part.first_channel, extents, tiles,
                           shared);

  const auto cluster = cooperative_groups::this_cluster();
  if (tiles.blocks > 1) cluster.sync();
  if (thread < tiles.channels) {
    float total[kQuantities] = {};
    for (int other = 0; other < tiles.blocks; ++other) {
      const float* const of_other = cluster.map_shared_rank(&shared.of_block[0][0], other);
#pragma unroll
      for (int q = 0; q < kQuantities; ++q) total[q] += of_other[q * kMostTileChannels + thread];
    }
    float constants[kTables];
    policy.finish(part.first_channel + thread, inputs, total, part.rank == 0, constants);
#pragma unroll
    for (int t = 0; t < kTables; ++t) tables[t][thread] = constants[t];
  }
  if (tiles.blocks > 1) cooperative_groups::this_cluster().barrier_arrive();
  __syncthreads();

  float constants[kTables][kVecSize] = {};
  if (is_live(0)) {
#pragma unroll
    for (int t = 0; t < kTables; ++t) {
#pragma unroll
      for (int i = 0; i < kVecSize; ++i) constants[t][i] = tables[t][part.lanes.of(i)];
    }
  }
#pragma unroll
  for (int turn = 0; turn < kCopyTurns; ++turn) {
    if (!is_live(turn)) continue;
    const Element* const from = kept + turn * tiles.turn * kVecSize;
    const typename Policy::Map::Operands operands{load_vec(from), load_vec(from + kept_stride),
                                                  bits[turn]};
    policy.map.apply(operands, constants, element_of(turn), kAll, true);
  }
  // The others may still read this block's sums.
  if (tiles.blocks > 1) cooperative_groups::this_cluster().barrier_wait();
}

template <class Policy, OctetChannels kChannels>
void launch_gradient_copies_of(const CudaContext& context, const Policy& policy,
                               const ChannelExtents& extents, const ChannelTiles& tiles) {
  const int64_t bytes = int64_t{2} * tiles.of_block * static_cast<int64_t>(sizeof(uint4));
  auto* const kernel = gradient_copies_kernel<Policy, kChannels>;
  allow_shared_bytes(kernel, bytes);
  cudaLaunchAttribute meeting{};
  meeting.id = cudaLaunchAttributeClusterDimension;
  meeting.val.clusterDim.x = static_cast<unsigned>(tiles.blocks);
  meeting.val.clusterDim.y = meeting.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(tiles.tiles * tiles.blocks));
  config.blockDim = dim3(kCopyThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = context.stream;
  config.attrs = &meeting;
  config.numAttrs = tiles.blocks > 1 ? 1 : 0;
  BERTHA_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, policy, extents, tiles));
}

/// Tiles of plan_gradient_copies.
template <class Policy>
void launch_gradient_copies(const CudaContext& context, const Policy& policy,
                            const ChannelExtents& extents, const ChannelTiles& tiles) {
  if (tiles.kind == OctetChannels::kSame) {
    launch_gradient_copies_of<Policy, OctetChannels::kSame>(context, policy, extents, tiles);
  } else {
    launch_gradient_copies_of<Policy, OctetChannels::kTwo>(context, policy, extents, tiles);
  }
}

}  // namespace bertha

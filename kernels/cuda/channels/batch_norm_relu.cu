// BatchNorm + ReLU and BatchNorm + Add + ReLU with a bit per element for backward.
//
// Bytes at [128, 64, 112 * 112] bf16 (U = 205.5 MB, 48.1 us at the 4.27 TB/s of a large copy), bits
// at U / 16 per pass over them:
//
//   training forward      3 U (x twice, y),            with addend 4 U; + U / 16
//   inference forward     2 U,                         with addend 3 U; + U / 16 where bits are
//                                                      wanted
//   training backward     5 U (dy and x twice, dx),    with daddend 6 U; + U / 8
//   inference backward    4 U (dy twice, x, dx),       with daddend 5 U; + U / 8
//
// Limited by memory. Where blocks can keep all elements of a channel in shared memory, training is
// one kernel that reads them once (channel_tiles.cuh): forward 2 U, with addend 3 U, backward 3 U,
// with daddend 4 U (gradient_copies.cuh where tiles run in waves). Else a kernel sums, a small one
// follows up, and a third goes over the elements from the end that the second-level cache still has.
//
// Measured: kernels/measured/rows.md.

#include "kernels/cuda/channels/batch_norm_sums.cuh"
#include "kernels/cuda/channels/channel_map.cuh"
#include "kernels/cuda/channels/channel_sums.cuh"
#include "kernels/cuda/channels/channel_tiles.cuh"
#include "kernels/cuda/channels/gradient_copies.cuh"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/column_sums.cuh"
#include "kernels/cuda/operations.h"
#include "kernels/ops/batch_norm_relu.h"

namespace bertha {
namespace {

constexpr int kThreads = 256;  // of the kernels over channels

__global__ void __launch_bounds__(kThreads)
    running_statistics_kernel(int64_t channels, NormParameters p, NormTables tables) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (channel >= channels) return;
  float constants[3];
  finish_channel(p, channel, p.gamma[channel], p.beta[channel],
                 static_cast<double>(p.running_mean[channel]),
                 static_cast<double>(p.running_var[channel]), true, constants);
#pragma unroll
  for (int t = 0; t < 3; ++t) tables.data[t * tables.stride + channel] = constants[t];
}

// --- forward ---------------------------------------------------------------------------------

/// The larger of value and zero; NaN stays.
__device__ __forceinline__ float relu(float value) {
  float result;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(value));
  return result;
}

/// Bit i says that element i is not zero; no element is below zero.
template <class T>
__device__ __forceinline__ uint32_t nonzero_lanes(const Vec<T, kVecSize>& octet) {
  uint32_t bits = 0;
  if constexpr (sizeof(T) == 2) {
    // What adding carries into the sign bits of a word's lanes, gathered at bits 2 i and 2 i + 16.
#pragma unroll
    for (int i = 0; i < kVecSize / 2; ++i) {
      const uint32_t carried = (octet.word[i] & 0x7fff7fffu) + 0x7fff7fffu;
      bits |= (carried & 0x80008000u) >> (15 - 2 * i);
    }
    return (bits | bits >> 15) & 0xffu;
  } else {
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) bits |= element(octet, i) != 0.0f ? 1u << i : 0u;
    return bits;
  }
}

/// Normalise, add, ReLU and bits in one pass.
template <class T>
struct ForwardMap {
  static constexpr int kTables = 3;
  static constexpr int kBlocks = 3;
  static constexpr int kPacks = 4 / static_cast<int>(sizeof(T));
  struct Operands {
    Vec<T, kVecSize> x;
    Vec<T, kVecSize> addend;
  };

  const T* x;
  const T* addend;  // or null
  T* y;
  uint8_t* mask;      // or null
  NormTables tables;  // mean, rstd * gamma, beta

  __device__ const float* table(int t) const { return tables.of(t); }
  __device__ Operands load(int64_t at, const LaneRange& lanes, bool wide) const {
    Operands in{load_lanes(x + at, lanes, wide), {}};
    if (addend != nullptr) in.addend = load_lanes(addend + at, lanes, wide);
    return in;
  }
  __device__ void apply(const Operands& in, const float (&constants)[kTables][kVecSize], int64_t at,
                        const LaneRange& lanes, bool wide) const {
    float values[kVecSize];
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      float value = fmaf(element(in.x, i) - constants[0][i], constants[1][i], constants[2][i]);
      if (addend != nullptr) value += element(in.addend, i);
      values[i] = relu(value);
    }
    store_lanes(y + at, values, lanes, wide);
    if (mask == nullptr) return;
    uint32_t bits = nonzero_lanes(to_vec<T>(values));
    if (!lanes.is_whole()) bits &= (1u << lanes.high) - 1u;  // a map begins at lane 0
    mask[at / kVecSize] = static_cast<uint8_t>(bits);
  }
};

template <class T, bool kAdds>
struct ForwardTile {
  using Element = T;
  using Sums = MomentSums<T>;
  using Finish = MomentFinish<T>;
  using Map = ForwardMap<T>;
  static constexpr int kKept = 1;  // x
  // The addend comes from far away: twice as many of it are on their way.
  static constexpr int kMapInFlight = kAdds ? 2 * Map::kPacks : Map::kPacks;

  Sums sums;
  Finish finish;
  Map map;

  __device__ void keep(const typename Sums::template Operands<kVecSize>& in, T* to, int64_t) const {
    store_vec(to, in.x);
  }
  __device__ typename Map::Operands restored(const T* from, int64_t, int64_t at) const {
    typename Map::Operands in{load_vec(from), {}};
    if constexpr (kAdds) in.addend = load_vec(map.addend + at);
    return in;
  }
};

template <class T, NormStatistics kStatistics>
struct BackwardMap {
  static constexpr bool kIsBatch = kStatistics == NormStatistics::kBatch;
  static constexpr int kTables = kIsBatch ? 4 : 1;
  static constexpr int kBlocks = 3;
  static constexpr int kPacks = 4 / static_cast<int>(sizeof(T));
  struct Operands {
    Vec<T, kVecSize> dy;
    Vec<T, kVecSize> x;  // with kBatch
    uint32_t bits;
  };

  const T* dy;
  const T* x;
  const uint8_t* mask;
  T* dx;
  T* daddend;         // or null
  NormTables tables;  // those of GradientFinish

  __device__ const float* table(int t) const { return tables.of(t); }
  __device__ Operands load(int64_t at, const LaneRange& lanes, bool wide) const {
    Operands in{load_lanes(dy + at, lanes, wide), {}, mask[at / kVecSize]};
    if constexpr (kIsBatch) in.x = load_lanes(x + at, lanes, wide);
    return in;
  }
  __device__ void apply(const Operands& in, const float (&constants)[kTables][kVecSize], int64_t at,
                        const LaneRange& lanes, bool wide) const {
    float g[kVecSize];
    float values[kVecSize];
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      g[i] = selected(in.dy, in.bits, i);
      float centred = g[i];
      if constexpr (kIsBatch) {
        const float difference = element(in.x, i) - constants[1][i];
        centred = fmaf(-difference, constants[3][i], g[i] - constants[2][i]);
      }
      values[i] = constants[0][i] * centred;
    }
    store_lanes(dx + at, values, lanes, wide);
    if (daddend != nullptr) store_lanes(daddend + at, g, lanes, wide);
  }
};

template <class T>
struct BackwardTile {
  using Element = T;
  using Sums = GradientSums<T>;
  using Finish = GradientFinish;
  using Map = BackwardMap<T, NormStatistics::kBatch>;
  static constexpr int kKept = 2;  // g, x
  static constexpr int kMapInFlight = Map::kPacks;

  Sums sums;
  Finish finish;
  Map map;

  __device__ void keep(const typename Sums::template Operands<kVecSize>& in, T* to,
                       int64_t stride) const {
    float g[kVecSize];
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) g[i] = selected(in.dy, in.bits, i);
    store_vec(to, to_vec<T>(g));
    store_vec(to + stride, in.x);
  }
  __device__ typename Map::Operands restored(const T* from, int64_t stride, int64_t) const {
    return {load_vec(from), load_vec(from + stride), 0xffu};
  }
};

/// Partial sums [splits, kQuantities, C] and tables, in one block of scratch.
template <class Finish>
struct ChannelScratch {
  typename Finish::Sum* partial;
  NormTables tables;

  ChannelScratch(CudaContext& context, int64_t splits, int64_t channels) {
    using Sum = typename Finish::Sum;
    constexpr auto kSumBytes = static_cast<int64_t>(sizeof(Sum));
    const int64_t stride = (channels + 3) / 4 * 4;
    const int64_t sums = splits * Finish::kQuantities * stride;  // at least those there are
    const int64_t bytes = sums * kSumBytes + Finish::kTables * stride * 4;
    partial = static_cast<Sum*>(context.scratch.take(bytes));
    tables = {reinterpret_cast<float*>(partial + sums), stride};
  }
};

double elements_per_channel(const ChannelExtents& extents) {
  return static_cast<double>(extents.outer) * static_cast<double>(extents.inner);
}

template <class T>
void forward(CudaContext& context, const BatchNormReluFwd& args, const ChannelExtents& extents) {
  const int64_t channels = extents.channels;
  const bool has_running = args.running_mean.has_data();
  const NormParameters parameters{
      .gamma = args.gamma.as<float>(),
      .beta = args.beta.as<float>(),
      .running_mean = has_running ? args.running_mean.as<float>() : nullptr,
      .running_var = has_running ? args.running_var.as<float>() : nullptr,
      .mean = args.mean.as<float>(),
      .rstd = args.rstd.as<float>(),
      .momentum = args.momentum,
      .epsilon = args.epsilon};
  ForwardMap<T> map{.x = elements<T>(args.x),
                    .addend = args.addend.has_data() ? elements<T>(args.addend) : nullptr,
                    .y = elements<T>(args.y),
                    .mask = args.mask.has_data() ? args.mask.as<uint8_t>() : nullptr,
                    .tables = {}};
  const bool aligned = is_aligned({map.x, map.addend, map.y});
  const MomentSums<T> moments{map.x, extents.inner};
  const MomentFinish<T> finish{moments, parameters, elements_per_channel(extents)};
  if (args.statistics == NormStatistics::kRunning) {
    map.tables = ChannelScratch<MomentFinish<T>>(context, 0, channels).tables;
    running_statistics_kernel<<<blocks_for(channels, kThreads, INT32_MAX), kThreads, 0,
                                context.stream>>>(channels, parameters, map.tables);
    BERTHA_CUDA_CHECK(cudaGetLastError());
  } else if (const auto tiles = plan_channel_tiles(
                 context, extents, kVecSize * static_cast<int64_t>(sizeof(T)), aligned)) {
    if (map.addend != nullptr) {
      launch_channel_tiles(context, ForwardTile<T, true>{moments, finish, map}, extents, *tiles);
    } else {
      launch_channel_tiles(context, ForwardTile<T, false>{moments, finish, map}, extents, *tiles);
    }
    return;
  } else {
    const bool x_aligned = is_aligned({map.x});
    const ChannelSumPlan plan = plan_channel_sums<MomentSums<T>>(context, extents, x_aligned);
    const ChannelScratch<MomentFinish<T>> scratch(context, plan.splits, channels);
    launch_channel_sums(context, moments, extents, plan, x_aligned, scratch.partial);
    map.tables = scratch.tables;
    finish_channels(context, finish, scratch.partial, plan.splits, channels, map.tables.data,
                    map.tables.stride);
  }
  map_channels(context, map, extents, aligned, true);
}

template <class T, NormStatistics kStatistics>
BackwardMap<T, kStatistics> backward_map(const BatchNormReluBwd& args, const NormTables& tables) {
  return {.dy = elements<T>(args.dy),
          .x = elements<T>(args.x),
          .mask = args.mask.as<uint8_t>(),
          .dx = elements<T>(args.dx),
          .daddend = args.daddend.has_data() ? elements<T>(args.daddend) : nullptr,
          .tables = tables};
}

template <class T>
void backward(CudaContext& context, const BatchNormReluBwd& args, const ChannelExtents& extents) {
  constexpr NormStatistics kBatch = NormStatistics::kBatch;
  constexpr NormStatistics kRunning = NormStatistics::kRunning;
  const int64_t channels = extents.channels;
  const GradientSums<T> gradient{elements<T>(args.dy), elements<T>(args.x), args.mask.as<uint8_t>(),
                                 args.mean.as<float>()};
  const GradientFinish finish{.parameters = {.gamma = args.gamma.as<float>(),
                                             .mean = args.mean.as<float>(),
                                             .rstd = args.rstd.as<float>(),
                                             .dgamma = args.dgamma.as<float>(),
                                             .dbeta = args.dbeta.as<float>(),
                                             .add = args.accumulate == Accumulate::kYes},
                              .per_element = 1.0 / elements_per_channel(extents)};
  const bool all_aligned = is_aligned({gradient.dy, gradient.x, args.dx.data, args.daddend.data});
  const bool is_batch = args.statistics == kBatch;
  if (is_batch) {
    constexpr int64_t kKeptBytes = 2 * kVecSize * static_cast<int64_t>(sizeof(T));
    if (const auto tiles = plan_channel_tiles(context, extents, kKeptBytes, all_aligned)) {
      const BackwardTile<T> tile{gradient, finish, backward_map<T, kBatch>(args, {})};
      if constexpr (sizeof(T) == 2) {
        if (const auto copies = plan_gradient_copies(*tiles, kKeptBytes)) {
          return launch_gradient_copies(context, tile, extents, *copies);
        }
      }
      return launch_channel_tiles(context, tile, extents, *tiles);
    }
  }
  const bool aligned = is_aligned({gradient.dy, gradient.x});
  const ChannelSumPlan plan = plan_channel_sums<GradientSums<T>>(context, extents, aligned);
  const ChannelScratch<GradientFinish> scratch(context, plan.splits, channels);
  launch_channel_sums(context, gradient, extents, plan, aligned, scratch.partial);
  const NormTables tables = scratch.tables;
  finish_channels(context, finish, scratch.partial, plan.splits, channels, tables.data,
                  tables.stride);
  if (is_batch) {
    map_channels(context, backward_map<T, kBatch>(args, tables), extents, all_aligned, true);
  } else {
    map_channels(context, backward_map<T, kRunning>(args, tables), extents, all_aligned, true);
  }
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const BatchNormReluFwd& args) {
  const ChannelExtents extents = channel_extents(args.x);
  if (extents.elements() == 0) return;
  dispatch_io(args.x.dtype,
              [&](auto tag) { forward<typename decltype(tag)::Type>(context, args, extents); });
}

template <>
void run_cuda(CudaContext& context, const BatchNormReluBwd& args) {
  const ChannelExtents extents = channel_extents(args.dy);
  if (extents.channels == 0) return;
  if (extents.elements() == 0) {  // sums over nothing
    const bool add = args.accumulate == Accumulate::kYes;
    finish_column_sums<float, 2>(context, nullptr, 0, extents.channels,
                                 {{{args.dgamma.as<float>(), add}, {args.dbeta.as<float>(), add}}});
    return;
  }
  dispatch_io(args.dy.dtype,
              [&](auto tag) { backward<typename decltype(tag)::Type>(context, args, extents); });
}

}  // namespace bertha

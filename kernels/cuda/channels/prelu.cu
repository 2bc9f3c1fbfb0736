// PReLU, forward and backward.
//
// Bytes at [128, 64, 112 * 112] bf16 (U = 205.5 MB, 48.1 us at the 4.27 TB/s of a large copy):
// forward 2 U, backward 3 U: the gradient of the slopes is summed in the pass that writes dx, and
// its partials are a few KiB, or stay in a block or a cluster of blocks. Limited by memory; small
// tensors by starting and ending (prelu_octets.cuh, prelu_tiles.cuh). Rows and planes of any length
// move in whole octets but for their edges.
//
// Measured: kernels/measured/rows.md.

#include "kernels/cuda/channels/channel_map.cuh"
#include "kernels/cuda/channels/channel_sums.cuh"
#include "kernels/cuda/channels/channel_tiles.cuh"
#include "kernels/cuda/channels/prelu_octets.cuh"
#include "kernels/cuda/channels/prelu_tiles.cuh"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/operations.h"
#include "kernels/ops/prelu.h"

namespace bertha {
namespace {

template <class T>
struct ForwardMap {
  static constexpr int kTables = 1;
  static constexpr int kBlocks = 4;
  static constexpr int kPacks = 1;
  struct Operands {
    Vec<T, kVecSize> x;
  };

  const T* x;
  const T* slope;
  T* y;

  __device__ const T* table(int) const { return slope; }
  __device__ Operands load(int64_t at, const LaneRange& lanes, bool wide) const {
    return {load_lanes(x + at, lanes, wide)};
  }
  __device__ void apply(const Operands& in, const float (&constants)[kTables][kVecSize], int64_t at,
                        const LaneRange& lanes, bool wide) const {
    float values[kVecSize];
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      const float value = element(in.x, i);
      values[i] = prelu(value, value, constants[0][i]);
    }
    store_lanes(y + at, values, lanes, wide);
  }
};

/// Writes dx, and sums dy * x over elements that are not above zero.
template <class T>
struct BackwardSums {
  using Sum = float;
  static constexpr int kQuantities = 1;
  static constexpr int kInFlight = 4 / static_cast<int>(sizeof(T));
  template <int kLanes>
  struct Operands {
    LaneGroup<T, kLanes> dy;
    LaneGroup<T, kLanes> x;
  };

  const T* dy;
  const T* x;
  const T* slope;
  T* dx;

  __device__ float constant(int64_t channel, int64_t) const { return to_float(slope[channel]); }
  template <int kLanes>
  __device__ Operands<kLanes> load(int64_t at, const LaneRange& lanes, bool wide) const {
    return {load_group<kLanes>(dy + at, lanes, wide), load_group<kLanes>(x + at, lanes, wide)};
  }
  template <int kLanes>
  __device__ void add(const Operands<kLanes>& in, const float (&slopes)[kLanes], int64_t at,
                      const LaneRange& lanes, bool wide, float (&sums)[1][kLanes]) const {
    float values[kLanes];
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      // An octet at the edge of a plane holds other channels' elements too.
      values[i] =
          gradient(element(in.dy, i), element(in.x, i), slopes[i], lanes.has(i), sums[0][i]);
    }
    if constexpr (kLanes == 1) {
      dx[at] = from_float<T>(values[0]);
    } else {
      store_lanes(dx + at, values, lanes, wide && lanes.is_whole());
    }
  }
  /// dx of a whole octet, for a kernel that stores it itself.
  __device__ __forceinline__ Vec<T, kVecSize> gradients(const Operands<kVecSize>& in,
                                                        const float (&slopes)[kVecSize],
                                                        float (&sums)[kVecSize]) const {
    float values[kVecSize];
#pragma unroll
    for (int i = 0; i < kVecSize; ++i) {
      values[i] = gradient(element(in.dy, i), element(in.x, i), slopes[i], true, sums[i]);
    }
    return to_vec<T>(values);
  }
  __device__ float total(int quantity, const float (&sums)[1], int64_t, float, int64_t) const {
    return sums[quantity];
  }

 private:
  /// dx of an element, which adds to `sum` if it `counts`.
  __device__ __forceinline__ static float gradient(float dy, float selector, float slope,
                                                   bool counts, float& sum) {
    if (counts && !(selector > 0.0f)) sum = fmaf(dy, selector, sum);
    return prelu(selector, dy, slope);
  }
};

/// dslope (+)= the sum.
template <class T>
struct SlopeFinish {
  using Sum = float;
  static constexpr int kQuantities = 1;
  static constexpr int kTables = 0;

  struct Inputs {
    float before;
  };

  T* dslope;
  bool add;

  __device__ Inputs load(int64_t channel) const { return {add ? to_float(dslope[channel]) : 0.0f}; }
  __device__ void operator()(int64_t channel, const Inputs& in, const float (&sums)[1], bool writes,
                             float*) const {
    if (writes) dslope[channel] = from_float<T>(in.before + sums[0]);
  }
};

/// dx is written on the way; nothing has to be kept.
template <class T>
struct BackwardTile {
  using Element = T;
  using Sums = BackwardSums<T>;
  using Finish = SlopeFinish<T>;
  using Map = void;
  static constexpr int kKept = 0;

  Sums sums;
  Finish finish;
};

}  // namespace

template <>
void run_cuda(CudaContext& context, const PreluFwd& args) {
  const ChannelExtents extents = channel_extents(args.x);
  if (extents.elements() == 0) return;
  dispatch_io(args.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const ForwardMap<T> map{elements<T>(args.x), elements<T>(args.slope), elements<T>(args.y)};
    const bool aligned = is_aligned({map.x, map.y});
    const bool slope_aligned = is_aligned({map.slope});
    if (is_in_prelu_octets(extents, aligned)) {
      launch_prelu_octets(context, map.x, map.slope, map.y, extents, slope_aligned);
    } else {
      map_channels(context, map, extents, aligned, slope_aligned);
    }
  });
}

template <>
void run_cuda(CudaContext& context, const PreluBwd& args) {
  const ChannelExtents extents = channel_extents(args.dy);
  if (extents.channels == 0) return;
  dispatch_io(args.dy.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const BackwardSums<T> sums{elements<T>(args.dy), elements<T>(args.x), elements<T>(args.slope),
                               elements<T>(args.dx)};
    const SlopeFinish<T> finish{elements<T>(args.dslope), args.accumulate == Accumulate::kYes};
    if (extents.elements() == 0) {  // sums over nothing
      if (finish.add) return;
      BERTHA_CUDA_CHECK(cudaMemsetAsync(finish.dslope, 0, static_cast<size_t>(args.dslope.bytes()),
                                        context.stream));
      return;
    }
    const bool aligned = is_aligned({sums.dy, sums.x, sums.dx});
    const auto plan = plan_channel_sums<BackwardSums<T>>(context, extents, aligned);
    if (plan.chunks == 0) {
      if (const auto planes = plan_prelu_planes(context, sums, extents, aligned)) {
        launch_prelu_planes(context, sums, finish, extents, *planes);
        return;
      }
      if (const auto columns = plan_prelu_columns(context, extents, aligned)) {
        launch_prelu_columns(context, sums, finish, extents, *columns);
        return;
      }
      if (const auto tiles = plan_plane_tiles(context, extents, 0, aligned)) {
        launch_plane_tiles(context, BackwardTile<T>{sums, finish}, extents, *tiles);
        return;
      }
    }
    auto* const partial = static_cast<float*>(
        context.scratch.take(plan.splits * extents.channels * static_cast<int64_t>(sizeof(float))));
    launch_channel_sums(context, sums, extents, plan, aligned, partial);
    finish_channels(context, finish, partial, plan.splits, extents.channels, nullptr, 0);
  });
}

}  // namespace bertha

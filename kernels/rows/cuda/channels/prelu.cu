// PReLU, forward and backward.
//
// Bytes of U = one tensor: forward 2 U, one pass (channel_apply.cuh); backward 3 U: the gradient of
// the slopes is summed in the pass that writes dx, in one kernel where it fits (channel_tiles.cuh)
// or with a second one for the splits (channel_sums.cuh). Bound by memory: 99 to 101 % of a copy
// forward, 90 to 101 % backward (kernels/rows/measured/rows.md); small tensors by the start and the
// end of a kernel.

#include "kernels/base/cuda/alignment.h"
#include "kernels/base/cuda/operations.h"
#include "kernels/rows/cuda/channels/channel_apply.cuh"
#include "kernels/rows/cuda/channels/channel_sums.cuh"
#include "kernels/rows/cuda/channels/channel_tiles.cuh"
#include "kernels/rows/ops/prelu.h"

namespace bertha {
namespace {

/// Zero and NaN are not above zero.
__device__ __forceinline__ float prelu(float selector, float value, float slope) {
  return selector > 0.0f ? value : slope * value;
}

template <class T>
struct ForwardApply {
  static constexpr int kTables = 1;
  static constexpr int kThreads = 256;
  static constexpr int kBlocksPerSm = 8;  // all threads of an SM
  static constexpr int kVecs = 1;
  static constexpr bool kOverlapsPlanes = true;
  struct Operands {
    Vec<T, kVecSize> x;
  };

  const T* x;
  const T* slope;
  T* y;

  __device__ const T* table(int) const { return slope; }
  __device__ Operands load(int64_t at, const VecAccess& access) const {
    return {load_part(x + at, access)};
  }
  __device__ void apply(const Operands& in, const float (&constants)[kTables][kVecSize], int64_t at,
                        const VecAccess& access) const {
    float values[kVecSize];
    for (int i = 0; i < kVecSize; ++i) {
      const float value = element(in.x, i);
      values[i] = prelu(value, value, constants[0][i]);
    }
    store_part(y + at, values, access);
  }
};

/// Writes dx, and sums dy * x over elements that are not above zero.
template <class T>
struct BackwardSums {
  using Sum = float;
  static constexpr int kQuantities = 1;
  static constexpr int kInFlight = 4 / static_cast<int>(sizeof(T));
  template <int N>
  struct Operands {
    Vec<T, N> dy;
    Vec<T, N> x;
  };

  const T* dy;
  const T* x;
  const T* slope;
  T* dx;

  __device__ float constant(int64_t channel, int64_t) const { return to_float(slope[channel]); }
  template <int N>
  __device__ Operands<N> load(int64_t at) const {
    return {load_vec<N>(dy + at), load_vec<N>(x + at)};
  }
  template <int N>
  __device__ void add(const Operands<N>& in, const float (&slopes)[N], int64_t at,
                      float (&sums)[1][N]) const {
    float values[N];
    for (int i = 0; i < N; ++i) {
      const float gradient = element(in.dy, i);
      const float selector = element(in.x, i);
      if (!(selector > 0.0f)) sums[0][i] = fmaf(gradient, selector, sums[0][i]);
      values[i] = prelu(selector, gradient, slopes[i]);
    }
    store_vec(dx + at, to_vec<T>(values));
  }
  __device__ float total(int quantity, const float (&sums)[1], int64_t, float, int64_t) const {
    return sums[quantity];
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

/// dx is written with the sums; nothing has to be kept.
template <class T>
struct BackwardTile {
  using Element = T;
  using Sums = BackwardSums<T>;
  using Finish = SlopeFinish<T>;
  static constexpr int kKept = 0;

  Sums sums;
  Finish finish;
};

/// Tiles, or nothing where two kernels are faster: planes of 2,048 elements and more, and a single
/// tile of columns, whose last block has many others to add up.
std::optional<ChannelTiles> plan_tiles(const CudaContext& context, const ChannelsShape& extents,
                                       bool aligned) {
  constexpr int64_t kLongPlane = 2048;
  if (extents.inner == 1) {
    const auto tiles = plan_column_tiles(context, extents, 0, 0, aligned);
    const bool is_fast = tiles && tiles->channels == kMostTileChannels && tiles->tiles > 1 &&
                         2 * tiles->tiles <= context.sm_count;
    return is_fast ? tiles : std::nullopt;
  }
  if (extents.inner >= kLongPlane && extents.inner % kVecSize == 0) return std::nullopt;
  return plan_plane_tiles(context, extents, 0, 0, aligned);
}

template <class T>
void backward(CudaContext& context, const PreluBwd& args, const ChannelsShape& extents) {
  const BackwardSums<T> sums{elements<T>(args.dy), elements<T>(args.x), elements<T>(args.slope),
                             elements<T>(args.dx)};
  const SlopeFinish<T> finish{elements<T>(args.dslope), args.accumulate == Accumulate::kYes};
  const bool aligned = is_aligned({sums.dy, sums.x, sums.dx});
  if (const auto tiles = plan_tiles(context, extents, aligned)) {
    launch_channel_tiles(context, BackwardTile<T>{sums, finish}, extents, *tiles);
    return;
  }
  sum_channels(context, sums, finish, extents, aligned);
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const PreluFwd& args) {
  const ChannelsShape extents = channel_extents(args.x);
  if (extents.elements() == 0) return;
  dispatch_io(args.x.dtype, [&]<class T>(TypeTag<T>) {
    const ForwardApply<T> policy{elements<T>(args.x), elements<T>(args.slope), elements<T>(args.y)};
    apply_to_channels(context, policy, extents, is_aligned({policy.x, policy.y}),
                      is_aligned({policy.slope}));
  });
}

template <>
void run_cuda(CudaContext& context, const PreluBwd& args) {
  const ChannelsShape extents = channel_extents(args.dy);
  if (extents.channels == 0) return;
  // Sums over nothing.
  if (extents.elements() == 0) return context.add_nothing(args.accumulate, args.dslope);
  dispatch_io(args.dy.dtype, [&]<class T>(TypeTag<T>) { backward<T>(context, args, extents); });
}

}  // namespace bertha

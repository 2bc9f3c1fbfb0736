// BatchNorm + ReLU and BatchNorm + Add + ReLU with a bit per element for backward.
//
// Bytes of U = one tensor, bits at U / 16 per pass over them: training forward 3 U (x twice, y),
// backward 5 U (dy and x twice, dx); inference forward 2 U, backward 4 U (dy twice, x, dx); one
// more each with addend or daddend.
//
// Bound by memory. Where blocks can keep all elements of a channel in shared memory, training is
// one kernel that reads them once (channel_tiles.cuh): forward 2 U, with addend 3 U, backward 3 U,
// with daddend 4 U. Else a kernel sums, a small one follows up (channel_sums.cuh), and a third goes
// over the elements (channel_apply.cuh) from the end that L2 still has: 69 to 100 % of a copy of
// the 2 to 4 U forward, 84 to 104 % backward.
//
// Measured: kernels/measured/rows.md.

#include "kernels/cuda/channels/batch_norm_sums.cuh"
#include "kernels/cuda/channels/channel_apply.cuh"
#include "kernels/cuda/channels/channel_sums.cuh"
#include "kernels/cuda/channels/channel_tiles.cuh"
#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/operations.h"
#include "kernels/ops/batch_norm_relu.h"

namespace bertha {
namespace {

/// f32 [kTables, stride] in scratch: what the last kernel needs of each channel.
struct NormTables {
  float* data;
  int64_t stride;  // channels, rounded up to a multiple of 16 bytes

  __device__ const float* of(int table) const { return data + table * stride; }
};

// --- forward ---------------------------------------------------------------------------------

/// The larger of value and zero; NaN stays.
__device__ __forceinline__ float relu(float value) {
  float result;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(value));
  return result;
}

/// Bit i says that element i is not zero; no element is below zero.
template <class T>
__device__ __forceinline__ uint32_t nonzero_bits(const Vec<T, kVecSize>& vec) {
  uint32_t bits = 0;
  if constexpr (sizeof(T) == 2) {
    // What adding carries into the sign bits of a word's halves, gathered at bits 2 i and 2 i + 16.
    for (int i = 0; i < kVecSize / 2; ++i) {
      const uint32_t carried = (vec.word[i] & 0x7fff7fffu) + 0x7fff7fffu;
      bits |= (carried & 0x80008000u) >> (15 - 2 * i);
    }
    return (bits | bits >> 15) & 0xffu;
  } else {
    for (int i = 0; i < kVecSize; ++i) bits |= element(vec, i) != 0.0f ? 1u << i : 0u;
    return bits;
  }
}

/// What the applying kernels of forward and backward share (channel_apply.cuh).
template <class T>
struct NormApply {
  static constexpr int kThreads = 128;
  static constexpr int kBlocksPerSm = 3;
  static constexpr int kVecs = 4 / static_cast<int>(sizeof(T));
  static constexpr bool kOverlapsPlanes = false;  // measured: slower
};

/// Normalise, add, ReLU and bits in one pass.
template <class T>
struct ForwardApply : NormApply<T> {
  static constexpr int kTables = 3;
  struct Operands {
    Vec<T, kVecSize> x;
    Vec<T, kVecSize> addend;
  };

  const T* x;
  const T* addend;  // or null
  T* y;
  uint8_t* mask;        // or null
  NormTables tables{};  // mean, rstd * gamma, beta

  explicit ForwardApply(const BatchNormReluFwd& args)
      : x(elements<T>(args.x)),
        addend(optional_elements<T>(args.addend)),
        y(elements<T>(args.y)),
        mask(optional_elements<uint8_t>(args.mask)) {}

  __device__ const float* table(int t) const { return tables.of(t); }
  __device__ Operands load(int64_t at, const VecAccess& access) const {
    Operands in{load_part(x + at, access), {}};
    if (addend != nullptr) in.addend = load_part(addend + at, access);
    return in;
  }
  __device__ void apply(const Operands& in, const float (&constants)[kTables][kVecSize], int64_t at,
                        const VecAccess& access) const {
    float values[kVecSize];
    for (int i = 0; i < kVecSize; ++i) {
      float value = fmaf(element(in.x, i) - constants[0][i], constants[1][i], constants[2][i]);
      if (addend != nullptr) value += element(in.addend, i);
      values[i] = relu(value);
    }
    store_part(y + at, values, access);
    if (mask == nullptr) return;
    const uint32_t bits = nonzero_bits(to_vec<T>(values));
    mask[at / kVecSize] = static_cast<uint8_t>(bits & ((1u << access.count) - 1u));
  }
};

template <class T, bool kAdds>
struct ForwardTile {
  using Element = T;
  using Sums = MomentSums<T>;
  using Finish = MomentFinish<T>;
  using Apply = ForwardApply<T>;
  static constexpr int kKept = 1;  // x
  // The addend comes from memory: twice as many of it are in flight.
  static constexpr int kApplyInFlight = kAdds ? 2 * Apply::kVecs : Apply::kVecs;

  Sums sums;
  Finish finish;
  Apply apply;

  __device__ void keep(const typename Sums::template Operands<kVecSize>& in, T* to, int64_t) const {
    store_vec(to, in.x);
  }
  __device__ typename Apply::Operands restored(const T* from, int64_t, int64_t at) const {
    typename Apply::Operands in{load_vec(from), {}};
    if constexpr (kAdds) in.addend = load_vec(apply.addend + at);
    return in;
  }
};

// --- backward --------------------------------------------------------------------------------

template <class T, NormStatistics kStatistics>
struct BackwardApply : NormApply<T> {
  static constexpr bool kIsBatch = kStatistics == NormStatistics::kBatch;
  static constexpr int kTables = kIsBatch ? 4 : 1;
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

  BackwardApply(const BatchNormReluBwd& args, const NormTables& of_channels)
      : dy(elements<T>(args.dy)),
        x(elements<T>(args.x)),
        mask(args.mask.as<uint8_t>()),
        dx(elements<T>(args.dx)),
        daddend(optional_elements<T>(args.daddend)),
        tables(of_channels) {}

  __device__ const float* table(int t) const { return tables.of(t); }
  __device__ Operands load(int64_t at, const VecAccess& access) const {
    Operands in{load_part(dy + at, access), {}, mask[at / kVecSize]};
    if constexpr (kIsBatch) in.x = load_part(x + at, access);
    return in;
  }
  __device__ void apply(const Operands& in, const float (&constants)[kTables][kVecSize], int64_t at,
                        const VecAccess& access) const {
    float g[kVecSize];
    float values[kVecSize];
    for (int i = 0; i < kVecSize; ++i) {
      g[i] = selected(in.dy, in.bits, i);
      float centred = g[i];
      if constexpr (kIsBatch) {
        const float difference = element(in.x, i) - constants[1][i];
        centred = fmaf(-difference, constants[3][i], g[i] - constants[2][i]);
      }
      values[i] = constants[0][i] * centred;
    }
    store_part(dx + at, values, access);
    if (daddend != nullptr) store_part(daddend + at, g, access);
  }
};

template <class T>
struct BackwardTile {
  using Element = T;
  using Sums = GradientSums<T>;
  using Finish = GradientFinish;
  using Apply = BackwardApply<T, NormStatistics::kBatch>;
  static constexpr int kKept = 2;  // g, x
  static constexpr int kApplyInFlight = Apply::kVecs;

  Sums sums;
  Finish finish;
  Apply apply;

  __device__ void keep(const typename Sums::template Operands<kVecSize>& in, T* to,
                       int64_t stride) const {
    float g[kVecSize];
    for (int i = 0; i < kVecSize; ++i) g[i] = selected(in.dy, in.bits, i);
    store_vec(to, to_vec<T>(g));
    store_vec(to + stride, in.x);
  }
  __device__ typename Apply::Operands restored(const T* from, int64_t stride, int64_t) const {
    return {load_vec(from), load_vec(from + stride), 0xffu};
  }
};

// --- launches --------------------------------------------------------------------------------

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

template <class T>
void forward(CudaContext& context, const BatchNormReluFwd& args, const ChannelExtents& extents) {
  ForwardApply<T> apply(args);
  const bool aligned = is_aligned({apply.x, apply.addend, apply.y});
  const MomentSums<T> moments{apply.x, extents.inner};
  const auto count = static_cast<double>(extents.of_channel());
  const MomentFinish<T> finish{.moments = moments,
                               .gamma = args.gamma.as<float>(),
                               .beta = args.beta.as<float>(),
                               .running_mean = optional_elements<float>(args.running_mean),
                               .running_var = optional_elements<float>(args.running_var),
                               .mean = args.mean.as<float>(),
                               .rstd = args.rstd.as<float>(),
                               .momentum = static_cast<double>(args.momentum),
                               .epsilon = static_cast<double>(args.epsilon),
                               .per_element = 1.0 / count,
                               .per_other_element = count > 1.0 ? 1.0 / (count - 1.0) : 0.0};
  if (args.statistics == NormStatistics::kRunning) {
    const int64_t stride = round_up(extents.channels, 4);
    apply.tables = {static_cast<float*>(context.scratch.take(3 * stride * 4)), stride};
    finish_channels(context, RunningFinish<T>{finish}, nullptr, 0, extents.channels,
                    apply.tables.data, stride);
  } else if (const auto tiles = plan_tiles<ForwardTile<T, true>>(context, extents, aligned)) {
    if (apply.addend != nullptr) {
      launch_channel_tiles(context, ForwardTile<T, true>{moments, finish, apply}, extents, *tiles);
    } else {
      launch_channel_tiles(context, ForwardTile<T, false>{moments, finish, apply}, extents, *tiles);
    }
    return;
  } else {
    apply.tables = sum_channels(context, moments, finish, extents, is_aligned({apply.x}));
  }
  apply_to_channels(context, apply, extents, aligned, true);
}

template <class T>
void backward(CudaContext& context, const BatchNormReluBwd& args, const ChannelExtents& extents) {
  using BatchApply = BackwardApply<T, NormStatistics::kBatch>;
  using RunningApply = BackwardApply<T, NormStatistics::kRunning>;
  const GradientSums<T> sums{elements<T>(args.dy), elements<T>(args.x), args.mask.as<uint8_t>(),
                             args.mean.as<float>()};
  const GradientFinish finish{.gamma = args.gamma.as<float>(),
                              .mean = args.mean.as<float>(),
                              .rstd = args.rstd.as<float>(),
                              .dgamma = args.dgamma.as<float>(),
                              .dbeta = args.dbeta.as<float>(),
                              .add = args.accumulate == Accumulate::kYes,
                              .per_element = 1.0 / static_cast<double>(extents.of_channel())};
  const bool aligned = is_aligned({sums.dy, sums.x});
  const bool all_aligned = aligned && is_aligned({args.dx.data, args.daddend.data});
  const bool is_batch = args.statistics == NormStatistics::kBatch;
  if (is_batch) {
    if (const auto tiles = plan_tiles<BackwardTile<T>>(context, extents, all_aligned)) {
      const BackwardTile<T> tile{sums, finish, BatchApply(args, {})};
      return launch_channel_tiles(context, tile, extents, *tiles);
    }
  }
  const NormTables tables = sum_channels(context, sums, finish, extents, aligned);
  if (is_batch) {
    apply_to_channels(context, BatchApply(args, tables), extents, all_aligned, true);
  } else {
    apply_to_channels(context, RunningApply(args, tables), extents, all_aligned, true);
  }
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const BatchNormReluFwd& args) {
  const ChannelExtents extents = channel_extents(args.x);
  if (extents.elements() == 0) return;
  dispatch_io(args.x.dtype, [&]<class T>(TypeTag<T>) { forward<T>(context, args, extents); });
}

template <>
void run_cuda(CudaContext& context, const BatchNormReluBwd& args) {
  const ChannelExtents extents = channel_extents(args.dy);
  if (extents.channels == 0) return;
  if (extents.elements() == 0) {  // sums over nothing
    context.add_nothing(args.accumulate, args.dgamma);
    return context.add_nothing(args.accumulate, args.dbeta);
  }
  dispatch_io(args.dy.dtype, [&]<class T>(TypeTag<T>) { backward<T>(context, args, extents); });
}

}  // namespace bertha

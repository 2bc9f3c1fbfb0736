// BatchNorm + ReLU and BatchNorm + Add + ReLU, forward, with a bit per element for backward.
//
// Bytes of U = one tensor, bits at U / 16 per pass over them: training 3 U (x twice, y), inference
// 2 U; one more each with addend.
//
// Bound by memory. Where blocks can keep all elements of a channel in shared memory, training is
// one kernel that reads them once (channel_tiles.cuh): 2 U, with addend 3 U. Else a kernel sums, a
// small one follows up (channel_sums.cuh), and a third goes over the elements (channel_apply.cuh)
// from the end that L2 still has: 69 to 100 % of a copy (kernels/rows/measured/rows.md).

#include "kernels/base/cuda/alignment.h"
#include "kernels/base/cuda/operations.h"
#include "kernels/rows/cuda/channels/batch_norm.cuh"
#include "kernels/rows/ops/batch_norm_relu.h"

namespace bertha {
namespace {

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
  uint8_t* mask;           // or null
  ChannelTables tables{};  // mean, rstd * gamma, beta

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

template <class T>
void forward(CudaContext& context, const BatchNormReluFwd& args, const ChannelsShape& extents) {
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

}  // namespace

template <>
void run_cuda(CudaContext& context, const BatchNormReluFwd& args) {
  const ChannelsShape extents = channel_extents(args.x);
  if (extents.elements() == 0) return;
  dispatch_io(args.x.dtype, [&]<class T>(TypeTag<T>) { forward<T>(context, args, extents); });
}

}  // namespace bertha

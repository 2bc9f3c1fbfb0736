// BatchNorm + ReLU and BatchNorm + Add + ReLU, backward.
//
// Bytes of U = one tensor, bits at U / 16 per pass over them: training 5 U (dy and x twice, dx),
// inference 4 U (dy twice, x, dx); one more each with daddend.
//
// Bound by memory. Where blocks can keep all elements of a channel in shared memory, training is
// one kernel that reads them once (channel_tiles.cuh): 3 U, with daddend 4 U. Else a kernel sums, a
// small one follows up (channel_sums.cuh), and a third goes over the elements (channel_apply.cuh)
// from the end that L2 still has: 84 to 104 % of a copy (kernels/rows/measured/rows.md).

#include "kernels/base/cuda/alignment.h"
#include "kernels/base/cuda/operations.h"
#include "kernels/rows/cuda/channels/batch_norm.cuh"
#include "kernels/rows/ops/batch_norm_relu.h"

namespace bertha {
namespace {

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
  T* daddend;            // or null
  ChannelTables tables;  // as in GradientFinish

  BackwardApply(const BatchNormReluBwd& args, const ChannelTables& of_channels)
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

template <class T>
void backward(CudaContext& context, const BatchNormReluBwd& args, const ChannelsShape& extents) {
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
  const ChannelTables tables = sum_channels(context, sums, finish, extents, aligned);
  if (is_batch) {
    apply_to_channels(context, BatchApply(args, tables), extents, all_aligned, true);
  } else {
    apply_to_channels(context, RunningApply(args, tables), extents, all_aligned, true);
  }
}

}  // namespace

template <>
void run_cuda(CudaContext& context, const BatchNormReluBwd& args) {
  const ChannelsShape extents = channel_extents(args.dy);
  if (extents.channels == 0) return;
  if (extents.elements() == 0) {  // sums over nothing
    context.add_nothing(args.accumulate, args.dgamma);
    return context.add_nothing(args.accumulate, args.dbeta);
  }
  dispatch_io(args.dy.dtype, [&]<class T>(TypeTag<T>) { backward<T>(context, args, extents); });
}

}  // namespace bertha
